//! The records that one daemon's producer has on their way: they land in a log some time, in the
//! order of their lane, and the daemon gets reports, which may differ.

use crate::broker::Broker;
use crate::chance::{Chance, Fault};
use crate::editions;
use crate::game::{EPOCH_MS, Record};
use crate::mutation::Mutation;
use huntd::publisher::producer::SendFailure;
use std::collections::{BTreeMap, VecDeque};

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Output(i32),
    Letters,
    Input(i32),
}

/// A record on its way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: u64,
    pub(crate) lane: Lane,
    pub(crate) bytes: Vec<u8>,
    /// Its offset if nobody else wrote to the log.
    pub(crate) alone: i64,
}

/// What is reported of a record.
pub(crate) struct Told {
    at: u64,
    pub(crate) id: u64,
    pub(crate) result: Result<i64, SendFailure>,
}

/// A record that lands without a report.
pub(crate) struct Late {
    pub(crate) at: u64,
    pub(crate) what: Landing,
}

/// What lands.
pub(crate) enum Landing {
    Record(Sent),
    /// A request to this broker.
    Request(i32, Vec<u8>),
}

impl Late {
    /// A record that lands then.
    pub(crate) fn record(at: u64, sent: Sent) -> Late {
        Late { at, what: Landing::Record(sent) }
    }

    /// Whether it is a frame, or some.
    pub(crate) fn is_for_output(&self) -> bool {
        match &self.what {
            Landing::Record(sent) => matches!(sent.lane, Lane::Output(_)),
            Landing::Request(..) => true,
        }
    }

    /// Lands.
    pub(crate) fn land(self, broker: &mut Broker, chance: &mut Chance, now: u64) {
        match self.what {
            Landing::Record(sent) if broker.takes(sent.lane) => {
                append(broker, &sent, now);
            }
            Landing::Record(_) => {}
            Landing::Request(node_id, request) => {
                let _nobody = broker.answer(chance, node_id, &request, false);
            }
        }
    }
}

/// One producer's lanes.
pub(crate) struct Line {
    lanes: BTreeMap<Lane, VecDeque<(u64, Sent)>>,
    told: VecDeque<Told>,
    stalled_until: u64,
    pub(crate) fatal: Option<String>,
    /// Reports for the producer, in their order, up to this time.
    pub(crate) now: u64,
    next_id: u64,
    mutation: Mutation,
    /// The next offset of each lane if nobody else wrote to the log.
    alone: BTreeMap<Lane, i64>,
}

impl Line {
    pub(crate) fn new(mutation: Mutation) -> Line {
        Line {
            lanes: BTreeMap::new(),
            told: VecDeque::new(),
            stalled_until: 0,
            fatal: None,
            now: 0,
            next_id: 0,
            mutation,
            alone: BTreeMap::new(),
        }
    }

    /// Takes a record: its number.
    pub(crate) fn take(&mut self, lane: Lane, bytes: Vec<u8>) -> u64 {
        self.next_id += 1;
        let next_alone = self.alone.entry(lane).or_default();
        let sent = Sent { id: self.next_id, lane, bytes, alone: *next_alone };
        *next_alone += 1;
        if lane == Lane::Letters && self.mutation == Mutation::LettersUngated {
            self.told.push_back(Told { at: self.now, id: sent.id, result: Ok(0) });
        }
        self.lanes.entry(lane).or_default().push_back((self.now, sent));
        self.next_id
    }

    /// The reports that are due.
    pub(crate) fn next_told(&mut self) -> Option<Told> {
        self.told.pop_front_if(|told| told.at <= self.now)
    }

    pub(crate) fn on_the_way(&self) -> usize {
        self.lanes.values().map(VecDeque::len).sum::<usize>() + self.told.len()
    }

    /// An ownership begins behind this output offset.
    pub(crate) fn begin(&mut self, partition: i32, output_offset: i64) {
        self.alone.insert(Lane::Output(partition), output_offset);
    }

    /// Lets records land, each lane in its order.
    pub(crate) fn land(
        &mut self,
        broker: &mut Broker,
        chance: &mut Chance,
        late: &mut Vec<Late>,
        now: u64,
    ) {
        if chance.strikes(Fault::ProducerStalls) {
            self.stalled_until = now + chance.pick(&[1_000, 100_000, 4_000_000]);
        }
        if now < self.stalled_until {
            return;
        }
        for lane in self.lanes.keys().copied().collect::<Vec<Lane>>() {
            for _ in 0..chance.between(1, 6) {
                let queue = self.lanes.get_mut(&lane).expect("just listed");
                let Some((_, sent)) = queue.pop_front_if(|(at, _)| *at < now) else { break };
                self.land_one(broker, chance, late, now, sent);
            }
        }
        self.lanes.retain(|_, queue| !queue.is_empty());
    }

    fn land_one(
        &mut self,
        broker: &mut Broker,
        chance: &mut Chance,
        late: &mut Vec<Late>,
        now: u64,
        mut sent: Sent,
    ) {
        if let (Mutation::OldEditionGoesOn, Lane::Output(partition)) = (self.mutation, sent.lane) {
            editions::go_on_after_takeover(&broker.outputs[partition as usize], &mut sent.bytes);
        }
        let fails = !broker.takes(sent.lane) || chance.strikes(Fault::AppendFails);
        if fails && self.mutation == Mutation::Resent && matches!(sent.lane, Lane::Output(_)) {
            // Sent again from memory, behind what was sent since.
            self.lanes.entry(sent.lane).or_default().push_back((now, sent));
            return;
        }
        let mut result = Err(failure());
        if !fails {
            let offset = append(broker, &sent, now);
            if chance.strikes(Fault::AppendedTwice) {
                append(broker, &sent, now);
            }
            if chance.strikes(Fault::AppendedLate) {
                let at = now + chance.pick(&[1_000, 500_000, 5_000_000]);
                late.push(Late::record(at, sent.clone()));
            }
            if !chance.strikes(Fault::AckLost) {
                result = Ok(if self.trusts() { sent.alone } else { offset });
            }
        }
        if sent.lane == Lane::Letters && self.mutation == Mutation::LettersUngated {
            return;
        }
        let at = self.told.back().map_or(now, |told| told.at.max(now)) + chance.delay_us();
        self.told.push_back(Told { at, id: sent.id, result });
    }

    /// Whether the daemon takes every acknowledgement for good.
    fn trusts(&self) -> bool {
        matches!(self.mutation, Mutation::Unverified | Mutation::Resent)
    }

    /// The producer is gone. Some of its records still land, without a report.
    pub(crate) fn abandon(&mut self, chance: &mut Chance, late: &mut Vec<Late>) {
        self.told.clear();
        for queue in std::mem::take(&mut self.lanes).into_values() {
            let landing = chance.below(queue.len() as u64 + 1) as usize;
            let from = self.now + chance.pick(&[1_000, 200_000, 6_000_000]);
            for (at, (_, sent)) in (from..).zip(queue.into_iter().take(landing)) {
                late.push(Late::record(at, sent));
            }
        }
    }
}

/// Appends a record to its log: its offset.
pub(crate) fn append(broker: &mut Broker, sent: &Sent, now: u64) -> i64 {
    match sent.lane {
        Lane::Output(partition) => broker.outputs[partition as usize].append(sent.bytes.clone()),
        Lane::Letters => {
            let key = String::from_utf8(sent.bytes.clone()).expect("keys are text");
            broker.letters.push(key);
            broker.letters.len() as i64 - 1
        }
        Lane::Input(partition) => {
            let time_ms = EPOCH_MS + (now / 1000) as i64;
            let record = Record { time_ms, value: Some(sent.bytes.clone()) };
            broker.append_plain(partition, record)
        }
    }
}

fn failure() -> SendFailure {
    SendFailure { sentence: "the broker did not take it".to_owned(), is_too_large: false }
}
