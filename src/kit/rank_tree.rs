//! An order-statistic tree over row numbers: finds the rank of a row in O(log n).
//!
//! It is a B+-tree whose nodes know how many rows are below each of their entries (Comer, "The
//! Ubiquitous B-Tree", 1979). A look-up reads a few nodes and prefetches each of them as a whole,
//! where a binary tree would wait for memory some twenty times. The order depends on the keys
//! alone.

use crate::kit::chunks::Chunks;
use std::ops::Range;

/// The sort key, compared word by word. No two rows may have the same key.
pub(crate) type Key = [u64; 3];

/// Entries of a node: the maximum, and the minimum of all nodes except the root.
const ENTRIES_MAX: usize = 30;
const ENTRIES_MIN: usize = ENTRIES_MAX / 2;

/// Entries of a node built from a sorted list, with room for some more before it is split.
const ENTRIES_FILLED: usize = 22;

/// The number of no node.
const NO_NODE: u32 = u32::MAX;

/// Nodes per chunk, the unit in which an order grows: a few KiB, as in the other tables.
const CHUNK_NODES: usize = 8;

/// Rows sorted by their keys.
#[derive(Clone, Debug)]
pub(crate) struct RankTree {
    nodes: Chunks<Node, CHUNK_NODES>,
    /// The first free node below `used`; its first entry is the next one.
    free: u32,
    used: u32,
    root: u32,
    /// Number of levels between the root and a row: 0 while the root holds the rows.
    height: u32,
}

/// A node. The entries of a leaf are rows, those of other nodes are nodes.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node {
    /// For a row, its key. For a node, a key that is not above that of any row below the node, and
    /// above those of all rows of the entry before. The key of the first node is unused.
    keys: [Key; ENTRIES_MAX],
    entries: [u32; ENTRIES_MAX],
    /// Number of rows below each entry; 1 for a row.
    sizes: [u32; ENTRIES_MAX],
    len: u32,
}

/// An entry of a node.
#[derive(Clone, Copy, Debug)]
struct NodeEntry {
    key: Key,
    entry: u32,
    size: u32,
}

impl Default for Node {
    fn default() -> Node {
        let none = [0; ENTRIES_MAX];
        Node { keys: [Key::default(); ENTRIES_MAX], entries: none, sizes: none, len: 0 }
    }
}

impl Node {
    fn len(&self) -> usize {
        self.len as usize
    }

    fn rows(&self) -> u32 {
        self.sizes[..self.len()].iter().sum()
    }

    /// Position of a row with this key in a leaf, existing or not.
    fn place(&self, key: Key) -> usize {
        self.keys[..self.len()].partition_point(|known| *known < key)
    }

    /// Index of the entry below which a row with this key belongs.
    fn branch(&self, key: Key) -> usize {
        self.keys[1..self.len()].partition_point(|known| *known <= key)
    }

    fn entry(&self, at: usize) -> NodeEntry {
        NodeEntry { key: self.keys[at], entry: self.entries[at], size: self.sizes[at] }
    }

    fn set(&mut self, at: usize, NodeEntry { key, entry, size }: NodeEntry) {
        (self.keys[at], self.entries[at], self.sizes[at]) = (key, entry, size);
    }

    fn insert(&mut self, at: usize, entry: NodeEntry) {
        let len = self.len();
        self.keys.copy_within(at..len, at + 1);
        self.entries.copy_within(at..len, at + 1);
        self.sizes.copy_within(at..len, at + 1);
        self.len += 1;
        self.set(at, entry);
    }

    fn remove(&mut self, at: usize) {
        let len = self.len();
        self.keys.copy_within(at + 1..len, at);
        self.entries.copy_within(at + 1..len, at);
        self.sizes.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    /// Copies some entries to the end of another node.
    fn move_to(&self, range: Range<usize>, other: &mut Node) {
        for at in range {
            other.set(other.len(), self.entry(at));
            other.len += 1;
        }
    }
}

impl RankTree {
    /// Creates an empty tree for at most this many rows.
    pub(crate) fn new(rows_max: usize) -> RankTree {
        let mut nodes = Chunks::new(nodes_for(rows_max));
        nodes.reach(0);
        RankTree { nodes, free: NO_NODE, used: 1, root: 0, height: 0 }
    }

    /// Allocates memory for this many rows, so that adding them later needs none.
    pub(crate) fn reach(&mut self, rows: u32) {
        self.nodes.reach(nodes_for(rows as usize) as u32 - 1);
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> u32 {
        self.nodes[self.root].rows()
    }

    /// Adds all these rows, sorted by key, to an empty tree. Later additions need more memory,
    /// unless it was reached.
    pub(crate) fn fill(&mut self, sorted: &[(Key, u32)]) {
        assert!(self.count() == 0 && sorted.is_sorted());
        if sorted.is_empty() {
            return;
        }
        self.give(self.root);
        let mut level: Vec<NodeEntry> =
            sorted.iter().map(|(key, row)| NodeEntry { key: *key, entry: *row, size: 1 }).collect();
        self.height = 0;
        loop {
            level = self.above(&level);
            if let [root] = level[..] {
                self.root = root.entry;
                return;
            }
            self.height += 1;
        }
    }

    /// Creates the nodes above these entries, evenly filled.
    fn above(&mut self, entries: &[NodeEntry]) -> Vec<NodeEntry> {
        let count = entries.len().div_ceil(ENTRIES_FILLED);
        let mut nodes = Vec::with_capacity(count);
        for node in 0..count {
            let share = |node: usize| node * entries.len() / count;
            let part = &entries[share(node)..share(node + 1)];
            let number = self.take();
            let made = &mut self.nodes[number];
            part.iter().enumerate().for_each(|(at, entry)| made.set(at, *entry));
            made.len = part.len() as u32;
            nodes.push(NodeEntry { key: part[0].key, entry: number, size: made.rows() });
        }
        nodes
    }

    /// Adds a row.
    pub(crate) fn insert(&mut self, key: Key, row: u32) {
        let entry = NodeEntry { key, entry: row, size: 1 };
        if let Some(right) = self.insert_below(self.root, self.height, entry) {
            let left = NodeEntry { key, entry: self.root, size: self.nodes[self.root].rows() };
            self.root = self.take();
            self.height += 1;
            let root = &mut self.nodes[self.root];
            root.insert(0, left);
            root.insert(1, right);
        }
    }

    /// Adds a row below a node. If the node was full and is split, returns its second half.
    fn insert_below(&mut self, number: u32, height: u32, row: NodeEntry) -> Option<NodeEntry> {
        let node = &mut self.nodes[number];
        if height == 0 {
            let at = node.place(row.key);
            return self.insert_at(number, at, row);
        }
        let at = node.branch(row.key);
        node.sizes[at] += 1;
        let child = node.entries[at];
        self.nodes.prefetch(child);
        let right = self.insert_below(child, height - 1, row)?;
        self.nodes[number].sizes[at] -= right.size;
        self.insert_at(number, at + 1, right)
    }

    fn insert_at(&mut self, number: u32, at: usize, entry: NodeEntry) -> Option<NodeEntry> {
        if self.nodes[number].len() < ENTRIES_MAX {
            self.nodes[number].insert(at, entry);
            return None;
        }
        let right_number = self.take();
        let mut right = Node::default();
        let left = &mut self.nodes[number];
        left.move_to(ENTRIES_MIN..ENTRIES_MAX, &mut right);
        left.len = ENTRIES_MIN as u32;
        match at <= ENTRIES_MIN {
            true => left.insert(at, entry),
            false => right.insert(at - ENTRIES_MIN, entry),
        }
        let made = NodeEntry { key: right.keys[0], entry: right_number, size: right.rows() };
        self.nodes[right_number] = right;
        Some(made)
    }

    /// Removes the row with this key, which must be there.
    pub(crate) fn remove(&mut self, key: Key) {
        self.remove_below(self.root, self.height, key);
        let root = &self.nodes[self.root];
        if self.height > 0 && root.len == 1 {
            let only = root.entries[0];
            self.give(self.root);
            self.root = only;
            self.height -= 1;
        }
    }

    fn remove_below(&mut self, number: u32, height: u32, key: Key) {
        let node = &mut self.nodes[number];
        if height == 0 {
            let at = node.place(key);
            assert!(at < node.len() && node.keys[at] == key, "a row of the order is in its tree");
            node.remove(at);
            return;
        }
        let at = node.branch(key);
        node.sizes[at] -= 1;
        let child = node.entries[at];
        self.nodes.prefetch(child);
        self.remove_below(child, height - 1, key);
        if self.nodes[child].len() < ENTRIES_MIN {
            self.mend(number, height, at);
        }
    }

    /// Refills a node below this one that has too few entries, from its neighbour, or merges the
    /// two.
    fn mend(&mut self, number: u32, height: u32, at: usize) {
        let (left_at, right_at) = (at.max(1) - 1, at.max(1));
        let node = self.nodes[number];
        let [left_number, right_number] = [left_at, right_at].map(|at| node.entries[at]);
        let (mut left, mut right) = (self.nodes[left_number], self.nodes[right_number]);
        if height > 1 {
            // The key of a first entry is unused, but this entry will no longer be the first.
            right.keys[0] = node.keys[right_at];
        }
        let all = left.len() + right.len();
        if all <= ENTRIES_MAX {
            right.move_to(0..right.len(), &mut left);
            self.nodes[number].remove(right_at);
            self.give(right_number);
        } else {
            let mut lower = Node::default();
            let mut upper = Node::default();
            let half = all / 2;
            let kept = half.min(left.len());
            left.move_to(0..kept, &mut lower);
            right.move_to(0..half - kept, &mut lower);
            left.move_to(kept..left.len(), &mut upper);
            right.move_to(half - kept..right.len(), &mut upper);
            (left, right) = (lower, upper);
            self.nodes[number].keys[right_at] = right.keys[0];
            self.nodes[number].sizes[right_at] = right.rows();
            self.nodes[right_number] = right;
        }
        self.nodes[number].sizes[left_at] = left.rows();
        self.nodes[left_number] = left;
    }

    /// Returns an empty node.
    fn take(&mut self) -> u32 {
        let number = self.free;
        if number == NO_NODE {
            self.used += 1;
            self.nodes.reach(self.used - 1);
            return self.used - 1;
        }
        self.free = self.nodes[number].entries[0];
        number
    }

    fn give(&mut self, number: u32) {
        let node = &mut self.nodes[number];
        node.len = 0;
        node.entries[0] = self.free;
        self.free = number;
    }

    /// Returns the first row and its key.
    pub(crate) fn first(&self) -> Option<(u32, Key)> {
        let mut number = self.root;
        for _ in 0..self.height {
            number = self.nodes[number].entries[0];
        }
        let leaf = &self.nodes[number];
        (leaf.len > 0).then(|| (leaf.entries[0], leaf.keys[0]))
    }

    /// Returns the number of rows before the one with this key.
    pub(crate) fn rank(&self, key: Key) -> u32 {
        let (mut number, mut before) = (self.root, 0);
        for _ in 0..self.height {
            let node = &self.nodes[number];
            let at = node.branch(key);
            before += node.sizes[..at].iter().sum::<u32>();
            number = node.entries[at];
        }
        before + self.nodes[number].place(key) as u32
    }

    /// Returns the row with this rank.
    pub(crate) fn at(&self, rank: u32) -> Option<u32> {
        if rank >= self.count() {
            return None;
        }
        let (mut number, mut rank) = (self.root, rank);
        for _ in 0..self.height {
            let node = &self.nodes[number];
            let mut at = 0;
            while rank >= node.sizes[at] {
                rank -= node.sizes[at];
                at += 1;
            }
            number = node.entries[at];
        }
        Some(self.nodes[number].entries[rank as usize])
    }
}

/// Upper limit of the nodes in an order of this many rows.
fn nodes_for(rows: usize) -> usize {
    let (mut level, mut all) = (rows, 0);
    while level > ENTRIES_MIN {
        level = level / ENTRIES_MIN + 1;
        all += level;
    }
    all + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl RankTree {
        /// Number of entries of each node except the root.
        fn fillings(&self) -> Vec<usize> {
            let (mut level, mut all) = (vec![self.root], Vec::new());
            for _ in 0..self.height {
                let below = |number: &u32| {
                    let node = &self.nodes[*number];
                    node.entries[..node.len()].to_vec()
                };
                level = level.iter().flat_map(below).collect();
                all.extend(level.iter().map(|number| self.nodes[*number].len()));
            }
            all
        }
    }

    #[test]
    fn a_hundred_thousand_rows_in_ascending_order_make_a_shallow_tree() {
        let mut order = RankTree::new(100_000);
        (0..100_000).for_each(|row| order.insert([u64::from(row), 0, 0], row));
        assert!(order.height <= 4);
        (0..100_000_u32).step_by(3).for_each(|row| order.remove([u64::from(row), 0, 0]));
        assert_eq!(order.count(), 66_666);
        assert_eq!(order.at(0), Some(1));
        let fillings = order.fillings();
        assert!(fillings.iter().all(|entries| *entries >= ENTRIES_MIN));
        assert!(fillings.len() < nodes_for(66_666));
    }

    #[test]
    fn rows_that_come_and_go_need_no_more_nodes_than_were_reached() {
        const ROWS: u64 = 4_000;
        let mut order = RankTree::new(ROWS as usize);
        order.reach(ROWS as u32);
        let reached = order.nodes.count();
        let key = |round: u64, row: u64| [(row * 7919 + round * 31) % 1_009, row, 0];
        (0..ROWS).for_each(|row| order.insert(key(0, row), row as u32));
        for round in 1..40 {
            for row in (0..ROWS).filter(|row| (row + round) % 3 != 0) {
                order.remove(key(round - 1, row));
            }
            for row in 0..ROWS {
                if (row + round) % 3 == 0 {
                    order.remove(key(round - 1, row));
                }
                order.insert(key(round, row), row as u32);
            }
            assert!(order.fillings().iter().all(|entries| *entries >= ENTRIES_MIN));
        }
        assert_eq!(order.nodes.count(), reached);
        (0..ROWS).for_each(|row| order.remove(key(39, row)));
        assert_eq!((order.count(), order.first(), order.height), (0, None, 0));
    }

    proptest! {
        #[test]
        fn the_order_agrees_with_a_sorted_list(
            first in 0u32..800,
            steps in prop::collection::vec((0u32..1_000, 0u64..12), 1..600),
        ) {
            let key = |row: u32, score: u64| [score, u64::from(row), 0];
            let mut order = RankTree::new(1_000);
            let mut model: BTreeSet<(Key, u32)> =
                (0..first).map(|row| (key(row, u64::from(row % 5)), row)).collect();
            order.fill(&model.iter().copied().collect::<Vec<_>>());
            for (row, score) in steps {
                let known = model.iter().find(|(_, known)| *known == row).copied();
                if let Some((key, _)) = known {
                    order.remove(key);
                    model.retain(|(_, known)| *known != row);
                }
                if known.is_none() || score > 5 {
                    order.insert(key(row, score), row);
                    model.insert((key(row, score), row));
                }
                prop_assert_eq!(order.count() as usize, model.len());
                prop_assert_eq!(order.first(), model.first().map(|(key, row)| (*row, *key)));
            }
            for (rank, (key, row)) in model.iter().enumerate() {
                prop_assert_eq!(order.at(rank as u32), Some(*row));
                prop_assert_eq!(order.rank(*key), rank as u32);
            }
            prop_assert_eq!(order.at(model.len() as u32), None);
        }
    }
}
