//! The broker that coordinates the group, asked who is in it.

use crate::control::dialler::DialOptions;
use crate::control::link::Link;
use crate::control::topic_client::TopicClient;
use crate::fetch::dialling::Endpoint;
use crate::kafka::group::GroupOptions;
use crate::kafka::group_description::GroupDescription;
use std::time::Instant;

/// Milliseconds that the coordinator may take for an answer.
const ANSWER_MS_MAX: u64 = 2_000;

/// Asks the coordinator, and looks for it if it is another broker now.
pub(super) struct GroupCoordinator {
    dial: DialOptions,
    group: GroupOptions,
    link: Option<Link>,
    /// How often the coordinator was looked for.
    tried: usize,
}

impl GroupCoordinator {
    /// Nobody is asked yet.
    pub(super) fn new(dial: DialOptions, group: GroupOptions) -> GroupCoordinator {
        GroupCoordinator { dial, group, link: None, tried: 0 }
    }

    /// The group as it is now; `None`: nobody says.
    pub(super) fn describe(&mut self) -> Option<GroupDescription> {
        let ready = self.link.take().filter(|link| !link.is_outdated(Instant::now()));
        let mut link = ready.or_else(|| self.open())?;
        link.hasten(ANSWER_MS_MAX);
        let (protocol, group) = (self.group.protocol, &self.group.client.group);
        let described = link.ask_group(&self.dial, protocol, group).ok()?;
        self.link = Some(link);
        Some(described)
    }

    fn open(&mut self) -> Option<Link> {
        let tried = self.tried;
        self.tried += 1;
        let mut any = TopicClient::connect(&self.dial, tried).ok()?;
        let broker = any.coordinator(&self.group.client.group).ok()?;
        Link::open_in_haste(ANSWER_MS_MAX, &Endpoint::of(&broker), &self.dial).ok()
    }
}
