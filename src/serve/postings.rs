//! Posted events on their way to the brokers.

use crate::decoder::Decoder;
use crate::kit::event::EventTable;
use crate::queue::{Received, Receiver};
use crate::runtime::wall_clock::unix_us;
use crate::serve::answers::Served;
use crate::serve::appender::{Appender, COMMANDS_WAITING_MAX, Report, Ticket};
use crate::serve::command::{Appended, Command, Stamps, commands};
use crate::serve::gate::{Gate, Pass};
use crate::serve::problem::Problem;

/// Turns posted events into records, and appends them.
pub(crate) struct Postings {
    /// `None`: clients may not post events.
    appender: Option<Appender>,
    reports: Receiver<Report>,
    decoder: Decoder,
    stamps: Stamps,
    /// Commands of which the brokers have not reported yet.
    commands_waiting: usize,
    /// Number of the last posting.
    posted: u64,
}

/// The events of one request, on their way.
pub(crate) struct Posting {
    number: u64,
    commands: Vec<(Command, Option<Appended>)>,
    /// The input offset that each command's zone had come to when it was posted.
    posted_at: Vec<i64>,
}

impl Postings {
    /// Nothing is posted yet. The appender's reports come through the receiver.
    pub(crate) fn new(
        events: &'static EventTable,
        appender: Option<Appender>,
        reports: Receiver<Report>,
    ) -> Postings {
        Postings {
            appender,
            reports,
            decoder: Decoder::new(events),
            stamps: Stamps::default(),
            commands_waiting: 0,
            posted: 0,
        }
    }

    /// Appends the events of a body, by the zone that its request names and what it showed at the
    /// gate.
    pub(crate) fn append(
        &mut self,
        session: u32,
        (body, zone, pass): (&[u8], Option<u16>, &Pass),
        served: &Served,
        (gate, now_ms): (&Gate, u64),
    ) -> Result<Posting, Problem> {
        let appender = self.appender.as_mut().ok_or(Problem::Forbidden)?;
        let now_us = unix_us();
        let stamps = &mut self.stamps;
        let stamp = || stamps.next(now_us);
        let commands = commands((body, zone, pass), served, &mut self.decoder, stamp)?;
        // All of them or none: what is sent again without a `seq` must not be there twice.
        if self.commands_waiting + commands.len() > COMMANDS_WAITING_MAX {
            return Err(Problem::Busy);
        }
        gate.count_commands(pass, commands.len(), now_ms)?;
        self.posted += 1;
        let come_to = |command: &Command| {
            served.view.zone(command.zone).map_or(0, |zone| zone.position().next_offset)
        };
        let mut posting = Posting {
            number: self.posted,
            posted_at: commands.iter().map(come_to).collect(),
            commands: Vec::with_capacity(commands.len()),
        };
        for (at, mut command) in commands.into_iter().enumerate() {
            let zone = command.zone;
            let ticket = Ticket { zone, session, posting: posting.number, command: at };
            appender.append(std::mem::take(&mut command.record), ticket);
            self.commands_waiting += 1;
            posting.commands.push((command, None));
        }
        Ok(posting)
    }

    /// Sends the brokers as much as may be on its way.
    pub(crate) fn send(&mut self) {
        if let Some(appender) = &mut self.appender {
            appender.send();
        }
    }

    /// Returns whether there is something to send or a report to take at once.
    pub(crate) fn has_work(&self) -> bool {
        let is_ready = self.appender.as_ref().is_some_and(Appender::is_ready);
        is_ready || !self.reports.is_empty()
    }

    /// Returns the brokers' next report about a command.
    pub(crate) fn next_report(&mut self) -> Option<Report> {
        match self.reports.receive() {
            Received::Item(report) => {
                self.commands_waiting -= 1;
                self.appender.as_mut().expect("it was appended").reported(report.ticket);
                Some(report)
            }
            Received::Empty | Received::Ended => None,
        }
    }
}

impl Posting {
    /// Takes the brokers' report about one of its commands. Another session's report is passed
    /// over: that session is gone, and this one has its number.
    pub(crate) fn take(&mut self, report: Report) {
        if report.ticket.posting == self.number {
            let at = report.ticket.command;
            self.commands[at].1 = Some(match report.appended {
                Appended::At(offset) if offset < self.posted_at[at] => Appended::Elsewhere,
                appended => appended,
            });
        }
    }

    /// Takes the commands, each with its result, once all results are known.
    pub(crate) fn take_whole(&mut self) -> Option<Vec<(Command, Appended)>> {
        if self.commands.iter().any(|(_, appended)| appended.is_none()) {
            return None;
        }
        let commands = std::mem::take(&mut self.commands).into_iter();
        commands.map(|(command, appended)| Some((command, appended?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_appended_before_what_the_zone_has_passed_is_in_another_input() {
        let command = |zone| Command { zone, player_id: 1, ts_us: 0, record: Vec::new() };
        let commands = vec![(command(0), None), (command(1), None)];
        let mut posting = Posting { number: 3, commands, posted_at: vec![10, 10] };
        for (command, offset) in [(0, 9), (1, 10)] {
            let ticket = Ticket { zone: 0, session: 0, posting: 3, command };
            assert!(posting.take_whole().is_none());
            posting.take(Report { ticket, appended: Appended::At(offset) });
        }
        let commands = posting.take_whole().expect("both are told");
        let appended: Vec<Appended> = commands.iter().map(|(_, appended)| *appended).collect();
        assert_eq!(appended, [Appended::Elsewhere, Appended::At(10)]);
    }
}
