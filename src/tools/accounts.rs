//! Applies records with the daemon's own decoder and engine, and counts the outcome of every
//! record.
//!
//! `replay` prints the accounts; `demo` compares what the daemon published with them.

use super::applier::Applier;
use super::past::BegunZone;
use super::source::SourceRecord;
use crate::decoder::reject::Reject;
use crate::kit::engine::{AnyRulebook, BlockReport, Departure, Engine, GameSchema};
use crate::kit::update::Update;
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
    /// Updates by kind.
    pub updates_by_kind: BTreeMap<&'static str, u64>,
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
        for (own, more) in [
            (&mut self.updates_by_kind, &other.updates_by_kind),
            (&mut self.refusals_by_reason, &other.refusals_by_reason),
            (&mut self.rejects_by_reason, &other.rejects_by_reason),
        ] {
            for (name, count) in more {
                *own.entry(name).or_default() += count;
            }
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
    /// The players who left for another zone, with the offset of the record.
    pub departures: &'a [(i64, Departure)],
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
    rulebook: AnyRulebook,
    /// Records to skip, by partition and offset.
    skips: BTreeSet<(i32, i64)>,
    shards: BTreeMap<u16, Played>,
    applier: Applier,
}

struct Played {
    zone: Box<dyn Engine>,
    account: Account,
    chain: Chain,
    next_update: u64,
}

impl OfflineShards {
    /// Creates shards that have not applied anything yet.
    pub(crate) fn new(rulebook: AnyRulebook) -> OfflineShards {
        OfflineShards::passing_over(rulebook, &[])
    }

    /// Creates shards that have not applied anything yet, and that will skip the records at these
    /// partitions and offsets.
    pub(crate) fn passing_over(rulebook: AnyRulebook, skips: &[(i32, i64)]) -> OfflineShards {
        OfflineShards {
            skips: skips.iter().copied().collect(),
            shards: BTreeMap::new(),
            applier: Applier::new(rulebook.schema()),
            rulebook,
        }
    }

    /// Has a shard begin with the state of a snapshot. Its account counts what comes after.
    pub(super) fn begin(&mut self, partition: u16, begun: BegunZone) {
        let BegunZone { engine: zone, next_update, chain, skips, .. } = begun;
        self.skips.extend(skips.into_iter().map(|offset| (partition.into(), offset)));
        let played = Played { zone, account: Account::default(), chain, next_update };
        self.shards.insert(partition, played);
    }

    /// Applies the next record of its partition. Fails if the record requires rules that are not
    /// loaded.
    pub(crate) fn apply(&mut self, record: &SourceRecord<'_>) -> Result<Applied<'_>, StartError> {
        let SourceRecord { partition, offset, .. } = *record;
        let OfflineShards { rulebook, skips, shards, applier } = self;
        let shard = shards.entry(partition);
        let played = shard.or_insert_with(|| Played::new(partition, rulebook));
        let first_update = played.next_update;
        let decoded = applier.decode(record, skips.contains(&(partition.into(), offset)));
        applier.apply(&mut *played.zone)?;
        let (reject, report) = (decoded.err(), applier.report());
        played.count(rulebook.schema(), reject, report);
        let (updates, departures) = (applier.updates(), report.departures.as_slice());
        played.count_updates(rulebook.schema(), updates);
        Ok(Applied { first_update, updates, departures, reject })
    }

    /// Explains a reject in words.
    pub(crate) fn explain(&mut self, reject: Reject, value: Option<&[u8]>) -> String {
        self.applier.explain(reject, value)
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
    fn new(partition: u16, rulebook: &AnyRulebook) -> Played {
        let zone = rulebook.new_zone(partition);
        Played { zone, account: Account::default(), chain: Chain::default(), next_update: 0 }
    }

    fn account(&self) -> Account {
        Account { chain: self.chain.0, digest: self.zone.digest(), ..self.account.clone() }
    }

    /// Counts a record: a reject, or the event in the report.
    fn count(&mut self, game: &GameSchema, reject: Option<Reject>, report: &BlockReport) {
        let account = &mut self.account;
        account.events += 1;
        if let Some(reject) = reject {
            account.rejects += 1;
            *account.rejects_by_reason.entry(reject.name()).or_default() += 1;
        }
        account.no_ops += report.no_ops;
        account.applied += report.applied.iter().map(|count| u64::from(*count)).sum::<u64>();
        for (reason, count) in game.refusals.iter().zip(report.refused) {
            if count > 0 {
                account.refusals += u64::from(count);
                *account.refusals_by_reason.entry(reason).or_default() += u64::from(count);
            }
        }
    }

    fn count_updates(&mut self, game: &GameSchema, updates: &[Update]) {
        self.account.updates += updates.len() as u64;
        self.next_update += updates.len() as u64;
        for update in updates {
            self.chain = self.chain.with(update);
            let kind = game.updates.kinds[usize::from(update.payload().kind) - 1].name;
            *self.account.updates_by_kind.entry(kind).or_default() += 1;
        }
    }
}
