//! An actor's inventory: slots that hold stacks of items.

use crate::hunt::event::{INVENTORY_SLOTS, ItemStack};

/// An actor's slots.
pub(crate) type Inventory = [ItemStack; INVENTORY_SLOTS];

/// Number of an item in the inventory.
fn held(items: &Inventory, item: u8) -> u32 {
    let stacks = items.iter().filter(|stack| stack.item == item);
    stacks.map(|stack| u32::from(stack.count)).sum()
}

/// Adds items, first to slots that hold the same item, then to empty ones. Returns the number now
/// held and the number that did not fit.
pub(crate) fn put(items: &mut Inventory, added: ItemStack, stack_max: u8) -> (u32, u8) {
    let mut left = added.count;
    for empty in [false, true] {
        for stack in items.iter_mut() {
            let fits = if empty { stack.count == 0 } else { stack.item == added.item };
            let moved = left.min(stack_max.saturating_sub(stack.count));
            if fits && moved > 0 {
                *stack = ItemStack { item: added.item, count: stack.count + moved };
                left -= moved;
            }
        }
    }
    (held(items, added.item), left)
}

/// Removes one item and returns the remaining number; `None` if there is none.
pub(crate) fn take(items: &mut Inventory, item: u8) -> Option<u32> {
    let stack = items.iter_mut().rev().find(|stack| stack.item == item && stack.count > 0)?;
    stack.count -= 1;
    if stack.count == 0 {
        *stack = ItemStack::default();
    }
    Some(held(items, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn stack(item: u8, count: u8) -> ItemStack {
        ItemStack { item, count }
    }

    #[test]
    fn items_fill_their_own_stacks_first_then_empty_slots() {
        let mut items = Inventory::default();
        items[1] = stack(7, 2);
        assert_eq!(put(&mut items, stack(7, 3), 4), (5, 0));
        assert_eq!((items[0], items[1]), (stack(7, 1), stack(7, 4)));
    }

    #[test]
    fn items_without_room_are_reported() {
        let mut items = [stack(1, 5); INVENTORY_SLOTS];
        items[7] = stack(2, 4);
        assert_eq!(put(&mut items, stack(2, 9), 5), (5, 8));
        assert_eq!(put(&mut items, stack(3, 1), 5), (0, 1));
    }

    #[test]
    fn the_last_item_of_a_stack_empties_its_slot() {
        let mut items = Inventory::default();
        items[0] = stack(3, 2);
        items[4] = stack(3, 1);
        assert_eq!(take(&mut items, 3), Some(2));
        assert_eq!(items[4], stack(0, 0));
        assert_eq!((take(&mut items, 3), take(&mut items, 3)), (Some(1), Some(0)));
        assert_eq!(take(&mut items, 3), None);
    }
}
