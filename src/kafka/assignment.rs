//! Which instance is to play which zones, as the operator lists it: the place of the consumer
//! group.

use crate::kafka::group_description::GroupDescription;
use crate::kafka::membership::GroupMember;
use crate::telemetry::progress::SHARDS_MAX;

/// The zones of all instances, without a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    instances: Vec<GroupMember>,
}

impl Assignment {
    /// Parses one line per instance, as `host-a: 0-31 40`. An error says what to write instead.
    pub fn parse(lines: &[String]) -> Result<Assignment, String> {
        let mut instances = Vec::<GroupMember>::new();
        for line in lines {
            // A name may have colons.
            let named = line.rsplit_once(':').map(|(name, zones)| (name.trim(), zones));
            let Some((id, zones)) = named.filter(|(name, _)| !name.is_empty()) else {
                return Err(format!("write `NAME: ZONES` instead of `{line}`"));
            };
            let partitions = parse_zones(zones)?;
            for other in &instances {
                if other.id == id {
                    return Err(format!("write one line for the instance `{id}`"));
                }
                if let Some(zone) = partitions.iter().find(|it| other.partitions.contains(it)) {
                    return Err(format!("give zone {zone} to `{}` or to `{id}`", other.id));
                }
            }
            // Nothing is known of their hosts, so each counts as on its own.
            instances.push(GroupMember { id: id.to_owned(), host: id.to_owned(), partitions });
        }
        Ok(Assignment { instances })
    }

    /// Returns the zones of an instance, or `None` if it is not in the list.
    pub(crate) fn zones_of(&self, instance: &str) -> Option<&[i32]> {
        let found = self.instances.iter().find(|it| it.id == instance);
        found.map(|instance| instance.partitions.as_slice())
    }

    /// Returns the highest zone in the list, or `None` if it names none.
    pub(crate) fn highest_zone(&self) -> Option<i32> {
        self.instances.iter().flat_map(|instance| &instance.partitions).max().copied()
    }

    /// Returns all instances, whether they run or not.
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

    fn parse(lines: &[&str]) -> Result<Assignment, String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Assignment::parse(&lines)
    }

    #[test]
    fn each_instance_has_its_own_zones_and_knows_those_of_all_others() {
        let list = parse(&["host-a: 0-2 6", "rack:host-b:3-5", "spare:"]).unwrap();
        let zones = ["host-a", "rack:host-b", "spare", "host"].map(|name| list.zones_of(name));
        assert_eq!(zones, [Some(&[0, 1, 2, 6][..]), Some(&[3, 4, 5]), Some(&[]), None]);
        assert_eq!(list.highest_zone(), Some(6));
        let group = list.describe();
        assert!(group.is_stable && group.members.len() == 3);
        let owner = group.members.iter().find(|member| member.partitions.contains(&4));
        assert_eq!(owner.unwrap().id, "rack:host-b");
    }

    #[test]
    fn a_wrong_list_is_refused_with_what_to_write() {
        for (lines, sentence) in [
            (&["a 0-3"][..], "write `NAME: ZONES` instead of `a 0-3`"),
            (&[": 0-3"], "write `NAME: ZONES` instead of `: 0-3`"),
            (&["a: 3-0"], "write zones from 0 to 1023 as `4` or `0-3` instead of `3-0`"),
            (&["a: 0-1024"], "write zones from 0 to 1023 as `4` or `0-3` instead of `0-1024`"),
            (&["a: 0, 1"], "write zones from 0 to 1023 as `4` or `0-3` instead of `0,`"),
            (&["a: -1"], "write zones from 0 to 1023 as `4` or `0-3` instead of `-1`"),
            (&["a: 0-3", "b: 3"], "give zone 3 to `a` or to `b`"),
            (&["a: 0", "a: 1"], "write one line for the instance `a`"),
        ] {
            assert_eq!(parse(lines), Err(sentence.to_owned()), "{lines:?}");
        }
    }
}
