//! Applies records with the daemon's own decoder and engine, and counts the outcome of every
//! record.
//!
//! `replay` prints the accounts; `demo` compares what the daemon published with them.

use super::source::SourceRecord;
use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::change::Change;
use crate::hunt::event::{Action, EVENTS};
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::{Outcome, Shard};
use crate::kit::update::{Update, Updates};
use crate::output::frame::Chain;
use crate::ownership::start_error::StartError;
use std::collections::{BTreeMap, BTreeSet};

/// The outcomes of one shard's records: events = applied + refusals + no-ops + rejects.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Account {
    /// All records.
    pub events: u64,
    /// Events that changed something.
    pub applied: u64,
    /// Events that the rules refused.
    pub refusals: u64,
    /// Refusals by reason.
    pub refusals_by_reason: BTreeMap<&'static str, u64>,
    /// Events that were repeated or older.
    pub no_ops: u64,
    /// Records that are not events.
    pub rejects: u64,
    /// Rejects by reason.
    pub rejects_by_reason: BTreeMap<&'static str, u64>,
    /// All updates.
    pub updates: u64,
    /// Hunts that began.
    pub hunts: u64,
    /// Hunts that ended.
    pub hunts_ended: u64,
    /// Treasures that were opened.
    pub treasures: u64,
    /// Shots that hit somebody.
    pub hits: u64,
    /// Actors that were downed.
    pub downed: u64,
    /// Hash over all updates.
    #[serde(serialize_with = "as_hex")]
    pub chain: u64,
    /// Hash of the state after the last record.
    #[serde(serialize_with = "as_hex")]
    pub digest: u64,
}

fn as_hex<S: serde::Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:016x}"))
}

impl Account {
    /// Adds another shard's counts. Hashes of several shards are folded, in the order of the
    /// shards.
    pub(crate) fn add(&mut self, other: &Account) {
        self.events += other.events;
        self.applied += other.applied;
        self.refusals += other.refusals;
        self.no_ops += other.no_ops;
        self.rejects += other.rejects;
        self.updates += other.updates;
        self.hunts += other.hunts;
        self.hunts_ended += other.hunts_ended;
        self.treasures += other.treasures;
        self.hits += other.hits;
        self.downed += other.downed;
        for (reason, count) in &other.refusals_by_reason {
            *self.refusals_by_reason.entry(reason).or_default() += count;
        }
        for (reason, count) in &other.rejects_by_reason {
            *self.rejects_by_reason.entry(reason).or_default() += count;
        }
        self.chain = fold(self.chain, other.chain);
        self.digest = fold(self.digest, other.digest);
    }
}

/// The outcome of one record.
pub(crate) struct Applied<'a> {
    /// Number of the first update that it caused.
    pub first_update: u64,
    /// The updates that it caused.
    pub updates: &'a [Update],
    /// Why it is not an event, if it is a reject.
    pub reject: Option<Reject>,
}

/// Combines hashes into one that depends on their order.
pub(crate) fn fold(hash: u64, next: u64) -> u64 {
    let product = u128::from(hash ^ next ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

/// The shards of all partitions, without the daemon.
pub(crate) struct OfflineShards {
    rulebook: Rulebook,
    /// Records to skip, by partition and offset.
    skips: BTreeSet<(i32, i64)>,
    decoder: Decoder,
    shards: BTreeMap<u16, Played>,
    updates: Updates,
}

struct Played {
    shard: Shard,
    account: Account,
    chain: Chain,
}

impl OfflineShards {
    /// Creates shards that have not applied anything yet.
    pub(crate) fn new(rulebook: Rulebook) -> OfflineShards {
        OfflineShards::passing_over(rulebook, &[])
    }

    /// Creates shards that have not applied anything yet, and that will skip the records at these
    /// partitions and offsets.
    pub(crate) fn passing_over(rulebook: Rulebook, skips: &[(i32, i64)]) -> OfflineShards {
        OfflineShards {
            rulebook,
            skips: skips.iter().copied().collect(),
            decoder: Decoder::new(&EVENTS),
            shards: BTreeMap::new(),
            updates: Updates::new(),
        }
    }

    /// Applies the next record of its partition. Fails if the record requires rules that are not
    /// loaded.
    pub(crate) fn apply(&mut self, record: &SourceRecord<'_>) -> Result<Applied<'_>, StartError> {
        let SourceRecord { partition, offset, time_ms, value } = *record;
        let rulebook = &self.rulebook;
        let shard = self.shards.entry(partition);
        let played = shard.or_insert_with(|| Played::new(partition, rulebook));
        let first_update = played.account.updates;
        played.account.events += 1;
        self.updates.clear();
        let decoded = match self.skips.contains(&(partition.into(), offset)) {
            true => Err(Reject::Skipped),
            false => self.decoder.decode::<Action>(RecordPosition { offset, time_ms }, value),
        };
        let reject = decoded.as_ref().err().copied();
        match decoded {
            Err(reject) => {
                played.account.rejects += 1;
                *played.account.rejects_by_reason.entry(reject.name()).or_default() += 1;
            }
            Ok(event) => match played.shard.apply(&event, &mut self.updates) {
                Outcome::Applied => played.account.applied += 1,
                Outcome::NoOp => played.account.no_ops += 1,
                Outcome::RulesMissing { ruleset } => {
                    return Err(StartError::RulesMissing { offset, ruleset });
                }
                Outcome::Refused(refusal) => {
                    played.account.refusals += 1;
                    *played.account.refusals_by_reason.entry(refusal.name()).or_default() += 1;
                }
            },
        }
        played.count_updates(self.updates.as_slice());
        Ok(Applied { first_update, updates: self.updates.as_slice(), reject })
    }

    /// Explains a reject in words.
    pub(crate) fn explain(&mut self, reject: Reject, value: Option<&[u8]>) -> String {
        self.decoder.explain(reject, value)
    }

    /// The accounts of all shards that had a record.
    pub(crate) fn accounts(&self) -> BTreeMap<u16, Account> {
        self.shards.iter().map(|(partition, played)| (*partition, played.account())).collect()
    }

    /// The account of one shard. A shard without records has an empty account.
    pub(crate) fn account(&self, partition: u16) -> Account {
        let new = || Played::new(partition, &self.rulebook).account();
        self.shards.get(&partition).map_or_else(new, Played::account)
    }

    /// The account of all shards together.
    pub(crate) fn total(&self) -> Account {
        let mut total = Account::default();
        for account in self.accounts().values() {
            total.add(account);
        }
        total
    }
}

impl Played {
    fn new(partition: u16, rulebook: &Rulebook) -> Played {
        let shard = Shard::new(partition, rulebook);
        Played { shard, account: Account::default(), chain: Chain::default() }
    }

    fn account(&self) -> Account {
        Account { chain: self.chain.0, digest: self.shard.digest(), ..self.account.clone() }
    }

    fn count_updates(&mut self, updates: &[Update]) {
        self.account.updates += updates.len() as u64;
        for update in updates {
            self.chain = self.chain.with(update);
            match update.change() {
                Change::HuntStarted { .. } => self.account.hunts += 1,
                Change::HuntEnded { .. } => self.account.hunts_ended += 1,
                Change::Looted { .. } => self.account.treasures += 1,
                Change::Damaged { .. } => self.account.hits += 1,
                Change::Downed { .. } => self.account.downed += 1,
                _ => {}
            }
        }
    }
}
