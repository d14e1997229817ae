//! An order-statistic tree over row numbers: who is where in an order, in O(log n).
//!
//! A weight-balanced tree (Adams; the balance of Hirai and Yamamoto, delta 3 and gamma 2). Nodes
//! lie by row number, so a row's node is found without a search, and the tree's order follows from
//! the keys alone.

use crate::engine::chunks::Chunks;
use crate::limits::CHUNK_ROWS;

/// What rows are ordered by, word by word. No two rows may have the same key.
pub type Key = [u64; 3];

/// Rows in the order of their keys.
#[derive(Clone, Debug)]
pub struct Order {
    nodes: Chunks<Node, CHUNK_ROWS>,
    /// Root, plus one; 0 is none. The same holds for the links of the nodes.
    root: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    key: Key,
    left: u32,
    right: u32,
    /// Nodes of the subtree; 0 in a node that is not in the tree.
    size: u32,
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
        self.size(self.root)
    }

    /// The key of a row that is in the order.
    pub fn key(&self, row: u32) -> Option<Key> {
        let known = (row as usize) < self.nodes.count() && self.nodes[row].size > 0;
        known.then(|| self.nodes[row].key)
    }

    /// Adds a row, or moves it.
    pub fn set(&mut self, row: u32, key: Key) {
        self.nodes.reach(row);
        if self.nodes[row].size > 0 {
            self.remove(row);
        }
        self.nodes[row] = Node { key, left: 0, right: 0, size: 1 };
        self.root = self.inserted(self.root, row + 1);
    }

    /// Removes a row if it is there.
    pub fn remove(&mut self, row: u32) {
        if let Some(key) = self.key(row) {
            self.root = self.removed(self.root, key);
            self.nodes[row] = Node::default();
        }
    }

    /// The first row and its key.
    pub fn first(&self) -> Option<(u32, Key)> {
        let row = self.at(0)?;
        Some((row, self.nodes[row].key))
    }

    /// How many rows come before this one, which must be in the order.
    pub fn rank(&self, row: u32) -> u32 {
        let key = self.nodes[row].key;
        let (mut tree, mut before) = (self.root, 0);
        while tree != 0 {
            let node = self.node(tree);
            if node.key < key {
                before += self.size(node.left) + 1;
                tree = node.right;
            } else {
                tree = node.left;
            }
        }
        before
    }

    /// The row that `rank` rows come before.
    pub fn at(&self, rank: u32) -> Option<u32> {
        let (mut tree, mut rank) = (self.root, rank);
        while tree != 0 {
            let node = self.node(tree);
            let before = self.size(node.left);
            match rank.cmp(&before) {
                std::cmp::Ordering::Less => tree = node.left,
                std::cmp::Ordering::Equal => return Some(tree - 1),
                std::cmp::Ordering::Greater => {
                    rank -= before + 1;
                    tree = node.right;
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

    fn size(&self, tree: u32) -> u32 {
        if tree == 0 { 0 } else { self.node(tree).size }
    }

    fn weight(&self, tree: u32) -> u32 {
        self.size(tree) + 1
    }

    fn inserted(&mut self, tree: u32, new: u32) -> u32 {
        if tree == 0 {
            return new;
        }
        let node = *self.node(tree);
        if self.node(new).key < node.key {
            let left = self.inserted(node.left, new);
            self.joined(tree, left, node.right)
        } else {
            let right = self.inserted(node.right, new);
            self.joined(tree, node.left, right)
        }
    }

    fn removed(&mut self, tree: u32, key: Key) -> u32 {
        assert!(tree != 0, "a row of the order is in its tree");
        let node = *self.node(tree);
        match key.cmp(&node.key) {
            std::cmp::Ordering::Less => {
                let left = self.removed(node.left, key);
                self.joined(tree, left, node.right)
            }
            std::cmp::Ordering::Greater => {
                let right = self.removed(node.right, key);
                self.joined(tree, node.left, right)
            }
            std::cmp::Ordering::Equal if node.right == 0 => node.left,
            std::cmp::Ordering::Equal => {
                let (least, right) = self.without_least(node.right);
                self.joined(least, node.left, right)
            }
        }
    }

    fn without_least(&mut self, tree: u32) -> (u32, u32) {
        let node = *self.node(tree);
        if node.left == 0 {
            return (tree, node.right);
        }
        let (least, left) = self.without_least(node.left);
        (least, self.joined(tree, left, node.right))
    }

    /// The tree of a node and two subtrees, one of which may be a little too heavy.
    fn joined(&mut self, tree: u32, left: u32, right: u32) -> u32 {
        if self.weight(right) > 3 * self.weight(left) {
            let Node { left: inner, right: outer, .. } = *self.node(right);
            if self.weight(inner) < 2 * self.weight(outer) {
                let lower = self.linked(tree, left, inner);
                return self.linked(right, lower, outer);
            }
            let Node { left: near, right: far, .. } = *self.node(inner);
            let lower = self.linked(tree, left, near);
            let upper = self.linked(right, far, outer);
            return self.linked(inner, lower, upper);
        }
        if self.weight(left) > 3 * self.weight(right) {
            let Node { left: outer, right: inner, .. } = *self.node(left);
            if self.weight(inner) < 2 * self.weight(outer) {
                let upper = self.linked(tree, inner, right);
                return self.linked(left, outer, upper);
            }
            let Node { left: far, right: near, .. } = *self.node(inner);
            let lower = self.linked(left, outer, far);
            let upper = self.linked(tree, near, right);
            return self.linked(inner, lower, upper);
        }
        self.linked(tree, left, right)
    }

    fn linked(&mut self, tree: u32, left: u32, right: u32) -> u32 {
        let size = self.size(left) + self.size(right) + 1;
        let node = self.node_mut(tree);
        (node.left, node.right, node.size) = (left, right, size);
        tree
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
        1 + depth(order, node.left).max(depth(order, node.right))
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
            steps in prop::collection::vec((0u32..40, 0u64..12, any::<bool>()), 1..300),
        ) {
            let mut order = Order::new(256);
            let mut model = BTreeSet::new();
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
