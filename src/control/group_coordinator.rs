//! The broker that coordinates the group, asked who is in it.

use crate::control::control_error::ControlError;
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
pub(crate) struct GroupCoordinator {
    dial: DialOptions,
    group: GroupOptions,
    link: Option<Link>,
    /// How often the coordinator was looked for.
    tried: usize,
}

impl GroupCoordinator {
    /// Nobody is asked yet.
    pub(crate) fn new(dial: DialOptions, group: GroupOptions) -> GroupCoordinator {
        GroupCoordinator { dial, group, link: None, tried: 0 }
    }

    /// The group as it is now, or as the operator lists it.
    pub(crate) fn describe(&mut self) -> Result<GroupDescription, ControlError> {
        if let Some(assignment) = &self.group.assignment {
            return Ok(assignment.describe());
        }
        let ready = self.link.take().filter(|link| !link.is_outdated(Instant::now()));
        let mut link = ready.map_or_else(|| self.open(), Ok)?;
        link.hasten(ANSWER_MS_MAX);
        let (protocol, group) = (self.group.protocol, &self.group.client.group);
        let described = link.ask_group(&self.dial, protocol, group)?;
        self.link = Some(link);
        Ok(described)
    }

    fn open(&mut self) -> Result<Link, ControlError> {
        let tried = self.tried;
        self.tried += 1;
        let mut any = TopicClient::connect(&self.dial, tried)?;
        let broker = any.coordinator(&self.group.client.group)?;
        Ok(Link::open_in_haste(ANSWER_MS_MAX, &Endpoint::of(&broker), &self.dial)?)
    }
}
