//! Why a shard cannot be started although brokers answer. Each reason is a sentence that says what
//! to do.
//!
//! huntd does not guess. If a change of leaders may be the cause, the start is tried again for a
//! while. If the cause persists, the shard halts. docs/RUNBOOKS.md has a remedy for each.

use crate::output::encode::FrameError;
use crate::output::fold::SKIPS_MAX;

impl StartError {
    /// What has happened, without what to do: perhaps there is nothing to do.
    pub(crate) fn cause(&self) -> String {
        let sentence = self.to_string();
        sentence.split("; ").next().unwrap_or_default().to_owned()
    }

    /// Describes what an instance of the version `ours` waits for while another one plays the zone.
    pub(super) fn awaited(&self, ours: u32) -> String {
        let who = match self {
            StartError::EditionBehind { version, .. } if *version != ours => {
                format!("version {version} of the game")
            }
            StartError::EditionBehind { .. } => "another version of the game".to_owned(),
            _ => "an instance with other rules, or of another version,".to_owned(),
        };
        format!("waiting for {who} to stop: it plays the zone, and leaves its state at the end")
    }

    /// Input offset from which on the input has other records than those that were applied, if that
    /// is what is wrong.
    pub(super) fn input_changed_from(&self) -> Option<i64> {
        match self {
            StartError::InputDiverged { applied, input_end } => Some(*input_end.min(applied)),
            _ => None,
        }
    }

    /// Whether the cause may pass soon: a broker that has just become a leader may not know yet
    /// where its logs end, and another instance may leave a state that can be used.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            StartError::StartGone
            | StartError::Contended
            | StartError::InputGone { .. }
            | StartError::InputLost { .. }
            | StartError::OutputGone { .. }
            | StartError::OutputLost { .. }
            | StartError::RulesetChanged { .. } => true,
            StartError::Damaged { .. }
            | StartError::Unreadable { .. }
            | StartError::InputRecreated
            | StartError::InputDiverged { .. }
            | StartError::OutputRecreated
            | StartError::EditionBehind { .. }
            | StartError::RulesMissing { .. }
            | StartError::SkipsTooMany { .. }
            | StartError::Diverged { .. } => false,
        }
    }
}

/// Why a shard cannot be started. Each sentence says what has happened, and after a semicolon what
/// to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The updates in the output are not those that its chain was made of.
    #[error(
        "the output is damaged at offset {offset}: the chain does not match the updates; restore \
         the topic, or start the shard over with a new output topic \
         (docs/RUNBOOKS.md#output-damaged)"
    )]
    Damaged {
        /// Output offset of the frame.
        offset: i64,
    },
    /// The output has a frame of another version, or of an unknown kind.
    #[error(
        "this huntd cannot read the frame at offset {offset} of the output: {error}; run the \
         version that wrote it, or upgrade with a new output topic \
         (docs/RUNBOOKS.md#frame-unreadable)"
    )]
    Unreadable {
        /// Output offset of the first of these frames that was met.
        offset: i64,
        /// What is wrong with it.
        error: FrameError,
    },
    /// Retention has deleted the output's start, and nothing says where the shard stood after it.
    #[error(
        "the start of the output is deleted and nothing in the rest says where the shard stands; \
         keep the output for longer than an owner's ten-second fences, or restore a snapshot \
         (docs/RUNBOOKS.md#output-begins-late)"
    )]
    StartGone,
    /// Another owner raises the owner epoch again and again.
    #[error(
        "another deployment takes the output over again and again, although our group gives the \
         partition to us; give each deployment an output topic of its own, or put all instances \
         into one kafka.group (docs/RUNBOOKS.md#another-deployment)"
    )]
    Contended,
    /// The oldest state that could be used needs input that retention has deleted.
    #[error(
        "the input begins at offset {input_start}, and the newest state needs it from {wanted} \
         on; restore a newer snapshot, or start over with `huntd run --genesis` \
         (docs/RUNBOOKS.md#input-begins-late)"
    )]
    InputGone {
        /// The first offset to apply.
        wanted: i64,
        /// The first offset that the input still has.
        input_start: i64,
    },
    /// The input is shorter than what was applied of it.
    #[error(
        "the input ends at offset {input_end}, and its records up to {wanted} were applied \
         before: it was truncated or created again; restore it, or start over with `huntd run \
         --genesis` (docs/RUNBOOKS.md#input-ends-early)"
    )]
    InputLost {
        /// The offset up to which it was applied.
        wanted: i64,
        /// The offset after its last record.
        input_end: i64,
    },
    /// The input has lost records that were applied, and others may be in their place: its leader
    /// epochs are not those that were read (KIP-320).
    #[error("{}", diverged(*.applied, *.input_end))]
    InputDiverged {
        /// The offset up to which it was applied.
        applied: i64,
        /// Where the records that were applied end in it.
        input_end: i64,
    },
    /// The newest state was made from a topic of the same name that is gone.
    #[error(
        "the input topic was deleted and created again since this output was written: its offsets \
         mean other records now; start over with `huntd run --genesis` \
         (docs/RUNBOOKS.md#input-recreated)"
    )]
    InputRecreated,
    /// The output is another topic than the one that the daemon began with.
    #[error(
        "the output topic was deleted and created again, and a reader that goes on from where it \
         was would pass over what is published now; let all readers begin at its start, and \
         publish everything again with `huntd run --genesis` (docs/RUNBOOKS.md#output-recreated)"
    )]
    OutputRecreated,
    /// The output has nothing of what was acknowledged.
    #[error(
        "the output holds none of the {made} updates that were acknowledged before: it was deleted \
         and created again, and a reader that goes on from where it was would pass over what is \
         published now; restore the topic, or let all readers begin at its start and publish \
         everything again with `huntd run --genesis` (docs/RUNBOOKS.md#output-recreated)"
    )]
    OutputGone {
        /// Updates by the snapshot.
        made: u64,
    },
    /// The output is shorter than what was acknowledged of it.
    #[error(
        "the output holds {held} updates, and {made} were acknowledged before: it has lost its \
         end; restore the topic, or drop the snapshots (`huntd snapshot drop`) and start over \
         with `huntd run --genesis` (docs/RUNBOOKS.md#output-ends-early)"
    )]
    OutputLost {
        /// Updates by the snapshot.
        made: u64,
        /// Updates by the output.
        held: u64,
    },
    /// The state was made by other rules, or another engine.
    #[error(
        "what is published was made by ruleset {published}, and rules.files have others, {ours} \
         first; add the rules that published, run the version that did, or start over with `huntd \
         run --genesis` (docs/RUNBOOKS.md#other-ruleset)"
    )]
    RulesetChanged {
        /// The ruleset's hash in the output, or in the snapshot.
        published: u32,
        /// Ours: that of a new zone.
        ours: u32,
    },
    /// Another version has published on from the newest state.
    #[error(
        "another version of the game has published up to update {published}, and the newest state \
         that is available, of version {version}, is at update {made}; start the version that \
         published last once and stop it in order, so that it leaves its state at the end, or \
         start over with `huntd run --genesis` (docs/RUNBOOKS.md#edition-behind)"
    )]
    EditionBehind {
        /// The version of the state.
        version: u32,
        /// Updates by the state.
        made: u64,
        /// Updates by the output.
        published: u64,
    },
    /// The input asks for rules that this daemon does not have.
    #[error(
        "the input asks at offset {offset} for ruleset {ruleset}, which is not loaded: add its \
         file to rules.files and restart, or pass the record over with `huntd run --skip` \
         (docs/RUNBOOKS.md#ruleset-missing)"
    )]
    RulesMissing {
        /// Input offset of the event.
        offset: i64,
        /// The ruleset's hash in the event.
        ruleset: u32,
    },
    /// The output has more skips than a snapshot has room for.
    #[error(
        "the output passes over {skips} records that are still to be replayed, and a snapshot has \
         room for {SKIPS_MAX}: another program writes to it; stop that program, and start over \
         with `huntd run --genesis` (docs/RUNBOOKS.md#too-many-skips)"
    )]
    SkipsTooMany {
        /// How many.
        skips: usize,
    },
    /// The replay differs from what is published.
    #[error(
        "the replay differs from what is published, at update {update}: the version or the input \
         has changed, or retention has deleted a skip from the output; run the version that \
         published, restore a snapshot, or start over with `huntd run --genesis` \
         (docs/RUNBOOKS.md#replay-differs)"
    )]
    Diverged {
        /// Number of the first update that is known to differ.
        update: u64,
    },
}

fn diverged(applied: i64, input_end: i64) -> String {
    let what = match input_end < applied {
        true => format!("was truncated to offset {input_end} below offset {applied}"),
        false => format!("has other records than before below offset {applied}"),
    };
    format!(
        "the input log {what} that is applied already: an unclean election lost records; restore \
         them, or start over with `huntd run --genesis` (docs/RUNBOOKS.md#input-ends-early)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_ends_where_it_did_has_other_records_and_was_not_truncated_to_its_end() {
        let sentence =
            |input_end| StartError::InputDiverged { applied: 1_665, input_end }.to_string();
        assert!(sentence(1_600).contains("was truncated to offset 1600 below offset 1665"));
        assert!(sentence(1_665).contains("has other records than before below offset 1665"));
    }

    /// Starting over would be wrong if the cause passes, or if another deployment publishes.
    #[test]
    fn a_cause_advises_nothing() {
        let update = 7;
        let errors = [
            StartError::InputGone { wanted: 1, input_start: 2 },
            StartError::InputLost { wanted: 2, input_end: 1 },
            StartError::InputRecreated,
            StartError::InputDiverged { applied: 2, input_end: 1 },
            StartError::OutputRecreated,
            StartError::OutputGone { made: 1 },
            StartError::OutputLost { made: 2, held: 1 },
            StartError::RulesetChanged { published: 1, ours: 2 },
            StartError::EditionBehind { version: 1, made: 2, published: 3 },
            StartError::SkipsTooMany { skips: 1_025 },
            StartError::Diverged { update },
        ];
        for error in errors {
            assert!(error.to_string().contains("--genesis"), "{error}");
            assert!(!error.cause().contains("--genesis"), "{error}");
        }
        assert!(!StartError::Contended.to_string().contains("--genesis"));
    }
}
