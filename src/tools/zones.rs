//! `huntd zones`: who owns each zone, who keeps copies of it, and how far its output is.

use super::brokers;
use super::failure::ToolError;
use super::kafka::{Cluster, FETCH_WAIT_MS, Isolation, TopicReader, partitions_of};
use super::published::published;
use super::topics::of_control;
use crate::control::group_coordinator::GroupCoordinator;
use crate::daemon::wiring::dial_options;
use crate::edition::Edition;
use crate::kafka::membership::{GroupMember, GroupView};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::runtime::wall_clock::unix_ms;
use crate::service::cli::ZonesArgs;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Characters of a member's id in a table: enough to tell members of one host apart.
const MEMBER_CHARS: usize = 16;

/// Prints a line for each zone.
pub fn run(args: &ZonesArgs, edition: &Edition) -> Result<(), ToolError> {
    let mut config = args.config.load()?;
    config.group.client.brokers = brokers::reach(&config.group.client)?;
    let cluster = Cluster::of_config(&config, "zones")?;
    let Cluster { client, input_topic, .. } = &cluster;
    let zones = partitions_of(client, input_topic, Right::Describe)?;
    let input = TopicReader::connect(client, input_topic, Isolation::Uncommitted, FETCH_WAIT_MS)?;
    let published = published(&cluster, edition)?;
    let outputs = (cluster.output_topic.as_str(), published.zones.len() as i32);
    TopicError::unless_equal((input_topic, zones.into()), outputs).map_err(of_control)?;
    published.warnings().iter().try_for_each(|warning| super::warn(warning))?;
    let dial = dial_options(&config, input_topic);
    let group = GroupCoordinator::new(dial, config.group.clone()).describe().map_err(of_control)?;
    let name = &config.group.client.group;
    if group.members.is_empty() {
        super::warn(&format!(
            "the group `{name}` has no members: no instance runs, or kafka.group is not theirs"
        ))?;
    } else if !group.is_stable {
        super::warn(&format!("the group `{name}` is being rebalanced: ask again in a moment"))?;
    }
    let view = GroupView { members: group.members, ..GroupView::default() };
    let mut lines = Vec::new();
    for zone in 0..zones {
        let (_, input_end) = input.bounds(zone)?;
        let last = published.zones[usize::from(zone)];
        lines.push(ZoneLine {
            zone,
            owner: view.owner_of(zone.into()).map(|owner| &view.members[owner]),
            copies: view.keepers_of(zone.into(), config.standby.copies),
            owner_epoch: last.map(|last| last.owner_epoch),
            published_ms_ago: last.map(|last| (unix_ms() - last.at_ms).max(0)),
            behind: last.map(|last| (input_end - last.next_offset).max(0)),
        });
    }
    let mut out = io::stdout().lock();
    match args.json {
        true => lines.iter().try_for_each(|line| writeln!(out, "{}", line.json()))?,
        false => print_table(&lines, &mut out)?,
    }
    Ok(())
}

/// One line of the list.
struct ZoneLine<'a> {
    zone: u16,
    /// Whom the group names.
    owner: Option<&'a GroupMember>,
    /// The keepers of its copies, in the order in which they take it over.
    copies: Vec<&'a GroupMember>,
    /// The owner epoch in force; `None`: nobody has owned it.
    owner_epoch: Option<u64>,
    published_ms_ago: Option<i64>,
    /// Records of the input that the output does not cover.
    behind: Option<i64>,
}

impl ZoneLine<'_> {
    fn json(&self) -> Value {
        let instance =
            |member: &GroupMember| json!({ "host": host(member), "member_id": member.id });
        json!({
            "zone": self.zone,
            "owner": self.owner.map(instance),
            "copies": self.copies.iter().map(|member| instance(member)).collect::<Vec<_>>(),
            "owner_epoch": self.owner_epoch,
            "published_ms_ago": self.published_ms_ago,
            "behind": self.behind,
        })
    }

    fn cells(&self) -> [String; 6] {
        let number = |number: Option<i64>| number.map_or("-".to_owned(), |it| it.to_string());
        let age = |ms: i64| format!("{}.{} s ago", ms / 1_000, ms % 1_000 / 100);
        let copies: Vec<String> = self.copies.iter().map(|member| short(member)).collect();
        [
            self.zone.to_string(),
            self.owner_epoch.map_or("-".to_owned(), |it| it.to_string()),
            self.published_ms_ago.map_or("never".to_owned(), age),
            number(self.behind),
            self.owner.map_or("nobody".to_owned(), short),
            copies.join(" "),
        ]
    }
}

/// The address of a member's host, as its coordinator sees it, or the name of an instance that the
/// operator lists.
fn host(member: &GroupMember) -> &str {
    member.host.trim_start_matches('/')
}

fn short(member: &GroupMember) -> String {
    if host(member) == member.id {
        return member.id.clone();
    }
    let id: String = member.id.chars().take(MEMBER_CHARS).collect();
    format!("{}/{id}", host(member))
}

fn print_table(lines: &[ZoneLine<'_>], out: &mut impl Write) -> io::Result<()> {
    let heads = ["zone", "epoch", "published", "behind", "owner", "copies"].map(str::to_owned);
    let rows: Vec<[String; 6]> =
        std::iter::once(heads).chain(lines.iter().map(ZoneLine::cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    for [zone, epoch, published, behind, owner, copies] in &rows {
        let [zones, epochs, times, numbers, owners] = widths;
        let line = format!(
            "{zone:>zones$}  {epoch:>epochs$}  {published:>times$}  {behind:>numbers$}  \
             {owner:<owners$}  {copies}"
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
