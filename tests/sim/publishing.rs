//! What one daemon's publisher has of its own: a ring, connections, a dialler.

use crate::answers::OUTPUT_TOPIC;
use crate::chance::Fault;
use crate::dialler::Dialler;
use crate::line::{Landing, Late};
use crate::mutation::Mutation;
use crate::network::Network;
use crate::node::Common;
use crate::producer::SimProducer;
use crate::surroundings::Surroundings;
use huntd::fetch::dialling::DialEnds;
use huntd::publisher::PublisherOptions;
use huntd::publisher::native::NativeProducer;
use huntd::publisher::sent::Sent;
use huntd::runtime::turns::Turns;
use huntd::telemetry::progress::Progress;
use std::rc::Rc;
use std::sync::Arc;

/// What the publisher has of its own.
pub(crate) struct Publishing {
    driver: Rc<Turns>,
    pub(crate) network: Network,
    dialler: Dialler,
}

impl Publishing {
    pub(crate) fn new(
        common: &Common,
        now: u64,
        options: &PublisherOptions,
        progress: &Arc<Progress>,
        is_native: bool,
        others: SimProducer<Sent>,
    ) -> (Publishing, NativeProducer<Sent, SimProducer<Sent>>) {
        let driver = common.turns(now);
        let (dialler, (to_dialler, dialled)) =
            Dialler::new(OUTPUT_TOPIC, driver.bell(), common.base, Mutation::None);
        let dialler_bell = common.bell.clone();
        let ends = DialEnds { dialler: to_dialler, dialler_bell, dialled };
        let mut options = options.clone();
        // The ledger also has to hold with what other producers may do: then frames go through the
        // line.
        if !is_native {
            options.output_topic = "none".to_owned();
        }
        let producer = NativeProducer::new(&options, &driver, ends, progress.clone(), others);
        (Publishing { driver, network: Network::new(common), dialler }, producer)
    }

    pub(crate) fn begin_turn(&mut self, around: &mut Surroundings<'_>) {
        let Publishing { driver, network, dialler } = self;
        driver.begin_turn(around.instant());
        dialler.turn(network, around.broker, around.chance, around.now);
        if around.chance.is_on(Fault::RequestLate) && around.chance.one_in(20) {
            network.break_unread(around.now);
        }
        network.deliver(driver.operations(), around.broker, around.chance, around.now);
        for (node_id, request) in network.take_left() {
            if around.chance.strikes_of(Fault::RequestLate, 80) {
                let at = around.now + around.chance.pick(&[1_000, 50_000, 500_000, 5_000_000]);
                around.late.push(Late { at, what: Landing::Request(node_id, request) });
            }
        }
    }

    /// When there is something to do.
    pub(crate) fn end_turn(&mut self, around: &mut Surroundings<'_>) -> u64 {
        let Publishing { driver, network, dialler } = self;
        let now = around.now;
        dialler.turn(network, around.broker, around.chance, now);
        network.take_orders(driver.operations(), around.chance, now);
        let is_at_rest = driver.try_sleep();
        driver.bell().wake_up();
        let deadline = driver.deadline().map(|at| (at - around.base).as_micros() as u64 + 1);
        let events = [deadline, network.next_at(), dialler.next_at()];
        let earliest = events.into_iter().flatten().min().unwrap_or(u64::MAX);
        if is_at_rest { earliest.max(now + 1) } else { now + 1 }
    }
}
