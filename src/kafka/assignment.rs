//! Which instance is to play which zones, as the operator lists it: the place of the consumer
//! group.

use crate::kafka::group_description::GroupDescription;
use crate::kafka::membership::GroupMember;
use crate::telemetry::progress::SHARDS_MAX;

/// The zones of all instances, without a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// All instances, this one first.
    instances: Vec<GroupMember>,
}

impl Assignment {
    /// Parses one line per instance, as `host-a: 0-31 40`. `ours` is the name of this instance.
    /// An error says what to write instead.
    pub fn parse(lines: &[String], ours: &str) -> Result<Assignment, String> {
        let mut instances = Vec::<GroupMember>::new();
        for line in lines {
            let (name, zones) = line
                .split_once(':')
                .ok_or_else(|| format!("write `NAME: ZONES` instead of `{line}`"))?;
            let (id, partitions) = (name.trim().to_owned(), parse_zones(zones)?);
            for other in &instances {
                if other.id == id {
                    return Err(format!("write one line for the instance `{id}`"));
                }
                if let Some(zone) = partitions.iter().find(|it| other.partitions.contains(it)) {
                    return Err(format!("give zone {zone} to `{}` or to `{id}`", other.id));
                }
            }
            // Each instance counts as a host of its own.
            instances.push(GroupMember { host: id.clone(), id, partitions });
        }
        let place = instances.iter().position(|instance| instance.id == ours).ok_or_else(|| {
            format!("write a line for this instance, kafka.group_instance_id `{ours}`")
        })?;
        instances.swap(0, place);
        Ok(Assignment { instances })
    }

    /// The name of this instance.
    pub(crate) fn ours(&self) -> &str {
        &self.instances[0].id
    }

    /// The zones that this instance is to play.
    pub(crate) fn our_zones(&self) -> &[i32] {
        &self.instances[0].partitions
    }

    /// The highest zone in the list; `None`: it has no zone.
    pub(crate) fn highest_zone(&self) -> Option<i32> {
        self.instances.iter().flat_map(|instance| &instance.partitions).max().copied()
    }

    /// All instances, whether they run or not.
    pub(crate) fn describe(&self) -> GroupDescription {
        GroupDescription { is_stable: true, members: self.instances.clone() }
    }
}

/// Parses zones like `0-31 40`; there may be none.
fn parse_zones(text: &str) -> Result<Vec<i32>, String> {
    let mut zones = Vec::new();
    for range in text.split_whitespace() {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|zone| zone.parse::<u16>().ok());
        match first.zip(last) {
            Some((first, last)) if first <= last && usize::from(last) < SHARDS_MAX => {
                zones.extend((first..=last).map(i32::from));
            }
            _ => {
                return Err(format!(
                    "write zones from 0 to {} as `4` or `0-3` instead of `{range}`",
                    SHARDS_MAX - 1
                ));
            }
        }
    }
    zones.sort_unstable();
    zones.dedup();
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str], ours: &str) -> Result<Assignment, String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Assignment::parse(&lines, ours)
    }

    #[test]
    fn each_instance_knows_its_own_zones_and_those_of_all_others() {
        let lines = ["host-a: 0-2 6", "host-b:3-5", "spare:"];
        let ours = ["host-a", "host-b", "spare"].map(|ours| parse(&lines, ours).unwrap());
        let zones = ours.each_ref().map(|ours| ours.our_zones().to_vec());
        assert_eq!(zones, [vec![0, 1, 2, 6], vec![3, 4, 5], vec![]]);
        for assignment in &ours {
            let group = assignment.describe();
            assert!(group.is_stable && group.members.len() == 3);
            assert_eq!(assignment.highest_zone(), Some(6));
            let owner = group.members.iter().find(|member| member.partitions.contains(&4));
            assert_eq!(owner.unwrap().id, "host-b");
        }
    }

    #[test]
    fn a_list_that_is_not_meant_so_is_refused_with_what_to_write() {
        for (lines, sentence) in [
            (&["a 0-3"][..], "write `NAME: ZONES` instead of `a 0-3`"),
            (&["a: 3-0"], "write zones from 0 to 1023 as `4` or `0-3` instead of `3-0`"),
            (&["a: 0-1024"], "write zones from 0 to 1023 as `4` or `0-3` instead of `0-1024`"),
            (&["a: 0, 1"], "write zones from 0 to 1023 as `4` or `0-3` instead of `0,`"),
            (&["a: -1"], "write zones from 0 to 1023 as `4` or `0-3` instead of `-1`"),
            (&["a: 0-3", "b: 3"], "give zone 3 to `a` or to `b`"),
            (&["a: 0", "a: 1"], "write one line for the instance `a`"),
            (&["b: 0"], "write a line for this instance, kafka.group_instance_id `a`"),
        ] {
            assert_eq!(parse(lines, "a"), Err(sentence.to_owned()), "{lines:?}");
        }
    }
}
