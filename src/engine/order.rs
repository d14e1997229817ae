//! An order-statistic tree over row numbers: who is where in an order, in O(log n).
//!
//! A weight-balanced tree (Adams; the balance of Hirai and Yamamoto, delta 3 and gamma 2). Nodes
//! lie by row number, so a row's node is found without a search, and the tree's order follows from
//! the keys alone.

use crate::engine::chunks::Chunks;
use crate::limits::{ACTORS_MAX, CHUNK_ROWS};

/// What rows are ordered by, word by word. No two rows may have the same key.
pub type Key = [u64; 3];

/// Rows in the order of their keys.
#[derive(Clone, Debug)]
pub struct Order {
    nodes: Chunks<Node, CHUNK_ROWS>,
    /// Root, plus one; 0 is none. The same holds for the links of the nodes.
    root: u32,
}

/// A node knows the sizes of both its subtrees, so that whether it is in balance is seen without a
/// look at its children. It is one cache line, as most of a way down waits for memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Node {
    key: Key,
    links: [u32; 2],
    sizes: [u32; 2],
    /// Whether it is in the tree.
    here: bool,
}

/// The two sides of a node.
const LEFT: usize = 0;
const RIGHT: usize = 1;

/// Nodes from the root to a leaf at most: each has less than three quarters of the one above it.
const DEPTH_MAX: usize = 48;
const _: () = assert!(ACTORS_MAX <= 1 << 17);

/// The nodes from the root down to some place, and on which side each was left.
struct Way {
    steps: [(u32, usize); DEPTH_MAX],
    count: usize,
}

impl Way {
    fn new() -> Way {
        Way { steps: [(0, LEFT); DEPTH_MAX], count: 0 }
    }

    fn push(&mut self, tree: u32, side: usize) {
        self.steps[self.count] = (tree, side);
        self.count += 1;
    }
}

impl Order {
    /// No rows. They are numbered below `rows_max`.
    pub fn new(rows_max: usize) -> Order {
        Order { nodes: Chunks::new(rows_max), root: 0 }
    }

    /// Makes the memory for a row, so that setting it later needs none.
    pub fn reach(&mut self, row: u32) {
        self.nodes.reach(row);
    }

    /// Rows in the order.
    pub fn count(&self) -> u32 {
        match self.root {
            0 => 0,
            root => self.node(root).sizes[LEFT] + self.node(root).sizes[RIGHT] + 1,
        }
    }

    /// The key of a row that is in the order.
    pub fn key(&self, row: u32) -> Option<Key> {
        let known = (row as usize) < self.nodes.count() && self.nodes[row].here;
        known.then(|| self.nodes[row].key)
    }

    /// Adds a row, or moves it.
    pub fn set(&mut self, row: u32, key: Key) {
        self.nodes.reach(row);
        self.remove(row);
        self.nodes[row] = Node { key, here: true, ..Node::default() };
        let (mut way, mut tree) = (Way::new(), self.root);
        while tree != 0 {
            let node = self.node_mut(tree);
            let side = if key < node.key { LEFT } else { RIGHT };
            node.sizes[side] += 1;
            way.push(tree, side);
            tree = node.links[side];
        }
        self.link(&way, way.count, row + 1);
        self.balance(&way);
    }

    /// Adds all these rows, in the order of their keys, to an order without any.
    pub fn fill(&mut self, sorted: &[(Key, u32)]) {
        assert!(self.root == 0 && sorted.is_sorted());
        self.root = self.grown(sorted);
    }

    fn grown(&mut self, sorted: &[(Key, u32)]) -> u32 {
        if sorted.is_empty() {
            return 0;
        }
        let (left, [(key, row), right @ ..]) = sorted.split_at(sorted.len() / 2) else {
            unreachable!("the second half is the longer one")
        };
        let sizes = [left.len() as u32, right.len() as u32];
        let links = [self.grown(left), self.grown(right)];
        self.nodes.reach(*row);
        self.nodes[*row] = Node { key: *key, links, sizes, here: true };
        row + 1
    }

    /// Removes a row if it is there.
    pub fn remove(&mut self, row: u32) {
        let Some(key) = self.key(row) else { return };
        let (mut way, mut tree) = (Way::new(), self.root);
        while tree != row + 1 {
            assert!(tree != 0, "a row of the order is in its tree");
            let node = self.node_mut(tree);
            let side = if key < node.key { LEFT } else { RIGHT };
            node.sizes[side] -= 1;
            way.push(tree, side);
            tree = node.links[side];
        }
        let place = way.count;
        let Node { links, sizes, .. } = self.nodes[row];
        if links[LEFT] == 0 || links[RIGHT] == 0 {
            self.link(&way, place, links[LEFT] | links[RIGHT]);
        } else {
            // The next one in the order takes its place.
            way.push(tree, RIGHT);
            let mut next = links[RIGHT];
            while self.node(next).links[LEFT] != 0 {
                self.node_mut(next).sizes[LEFT] -= 1;
                way.push(next, LEFT);
                next = self.node(next).links[LEFT];
            }
            self.link(&way, way.count, self.node(next).links[RIGHT]);
            let links = self.nodes[row].links;
            let node = self.node_mut(next);
            (node.links, node.sizes) = (links, [sizes[LEFT], sizes[RIGHT] - 1]);
            self.link(&way, place, next);
            way.steps[place] = (next, RIGHT);
        }
        self.nodes[row] = Node::default();
        self.balance(&way);
    }

    /// Links a tree below the first `count` nodes of a way.
    fn link(&mut self, way: &Way, count: usize, tree: u32) {
        match count.checked_sub(1).map(|last| way.steps[last]) {
            Some((parent, side)) => self.node_mut(parent).links[side] = tree,
            None => self.root = tree,
        }
    }

    /// Brings the nodes of a way back into balance, from below.
    fn balance(&mut self, way: &Way) {
        for at in (0..way.count).rev() {
            let (tree, _) = way.steps[at];
            let [left, right] = self.node(tree).sizes;
            let heavy = if right + 1 > 3 * (left + 1) {
                RIGHT
            } else if left + 1 > 3 * (right + 1) {
                LEFT
            } else {
                continue;
            };
            let child = self.node(tree).links[heavy];
            let [inner, outer] = [1 - heavy, heavy].map(|side| self.node(child).sizes[side] + 1);
            if inner >= 2 * outer {
                let lifted = self.lifted(child, 1 - heavy);
                self.node_mut(tree).links[heavy] = lifted;
            }
            let lifted = self.lifted(tree, heavy);
            self.link(way, at, lifted);
        }
    }

    /// Lifts a node's child on this side above it; returns the child.
    fn lifted(&mut self, tree: u32, side: usize) -> u32 {
        let child = self.node(tree).links[side];
        let Node { links, sizes, .. } = *self.node(child);
        let node = self.node_mut(tree);
        node.links[side] = links[1 - side];
        node.sizes[side] = sizes[1 - side];
        let size = node.sizes[LEFT] + node.sizes[RIGHT] + 1;
        let lifted = self.node_mut(child);
        lifted.links[1 - side] = tree;
        lifted.sizes[1 - side] = size;
        child
    }

    /// The first row and its key.
    pub fn first(&self) -> Option<(u32, Key)> {
        let mut tree = self.root;
        while tree != 0 {
            let node = self.node(tree);
            if node.links[LEFT] == 0 {
                return Some((tree - 1, node.key));
            }
            tree = node.links[LEFT];
        }
        None
    }

    /// How many rows come before this one, which must be in the order.
    pub fn rank(&self, row: u32) -> u32 {
        let key = self.nodes[row].key;
        let (mut tree, mut before) = (self.root, 0);
        while tree != 0 {
            let node = self.node(tree);
            if node.key < key {
                before += node.sizes[LEFT] + 1;
                tree = node.links[RIGHT];
            } else {
                tree = node.links[LEFT];
            }
        }
        before
    }

    /// The row that `rank` rows come before.
    pub fn at(&self, rank: u32) -> Option<u32> {
        let (mut tree, mut rank) = (self.root, rank);
        while tree != 0 {
            let node = self.node(tree);
            let before = node.sizes[LEFT];
            match rank.cmp(&before) {
                std::cmp::Ordering::Less => tree = node.links[LEFT],
                std::cmp::Ordering::Equal => return Some(tree - 1),
                std::cmp::Ordering::Greater => {
                    rank -= before + 1;
                    tree = node.links[RIGHT];
                }
            }
        }
        None
    }

    fn node(&self, tree: u32) -> &Node {
        &self.nodes[tree - 1]
    }

    fn node_mut(&mut self, tree: u32) -> &mut Node {
        &mut self.nodes[tree - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn depth(order: &Order, tree: u32) -> u32 {
        if tree == 0 {
            return 0;
        }
        let node = order.node(tree);
        1 + depth(order, node.links[LEFT]).max(depth(order, node.links[RIGHT]))
    }

    #[test]
    fn a_hundred_thousand_rows_in_ascending_order_make_a_shallow_tree() {
        let mut order = Order::new(100_000);
        (0..100_000).for_each(|row| order.set(row, [u64::from(row), 0, 0]));
        assert!(depth(&order, order.root) <= 30);
        (0..100_000).step_by(3).for_each(|row| order.remove(row));
        assert!(depth(&order, order.root) <= 30);
        assert_eq!(order.count(), 66_666);
        assert_eq!(order.at(0), Some(1));
    }

    proptest! {
        #[test]
        fn the_order_agrees_with_a_sorted_list(
            first in 0u32..40,
            steps in prop::collection::vec((0u32..40, 0u64..12, any::<bool>()), 1..300),
        ) {
            let mut order = Order::new(256);
            let mut model: BTreeSet<(Key, u32)> =
                (0..first).map(|row| ([u64::from(row % 5), u64::from(row), 0], row)).collect();
            order.fill(&model.iter().copied().collect::<Vec<_>>());
            for (row, score, add) in steps {
                model.retain(|(_, known)| *known != row);
                if add {
                    let key = [score, u64::from(row), 0];
                    order.set(row, key);
                    model.insert((key, row));
                } else {
                    order.remove(row);
                }
                prop_assert_eq!(order.count() as usize, model.len());
                for (rank, (key, row)) in model.iter().enumerate() {
                    prop_assert_eq!(order.at(rank as u32), Some(*row));
                    prop_assert_eq!(order.rank(*row), rank as u32);
                    prop_assert_eq!(order.key(*row), Some(*key));
                }
                prop_assert_eq!(order.at(model.len() as u32), None);
            }
        }
    }
}
