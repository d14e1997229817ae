//! The publisher's producer: hands records to a line, and passes on the line's reports.

use crate::answers::TOPIC;
use crate::line::{Lane, Line};
use huntd::output::dead_letter::DeadLetter;
use huntd::publisher::producer::{Delivery, Produce, SendFailure};
use huntd::publisher::publishing::Time;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A producer without a Kafka.
pub(crate) struct SimProducer<T> {
    line: Rc<RefCell<Line>>,
    receipts: BTreeMap<u64, T>,
}

impl<T> SimProducer<T> {
    pub(crate) fn new(line: Rc<RefCell<Line>>) -> SimProducer<T> {
        SimProducer { line, receipts: BTreeMap::new() }
    }

    fn hand_over(&mut self, lane: Lane, bytes: Vec<u8>, receipt: T) {
        let id = self.line.borrow_mut().take(lane, bytes);
        self.receipts.insert(id, receipt);
    }
}

impl<T> Produce<T> for SimProducer<T> {
    /// Does nothing: a simulated producer has no connections.
    fn expect_frames(&mut self, _partition: i32) {}

    fn expect_no_frames(&mut self, _partition: i32) {}

    fn send(&mut self, topic: &str, partition: i32, bytes: &[u8], receipt: T) {
        let lane = match topic {
            TOPIC => Lane::Input(partition),
            _ => Lane::Output(partition),
        };
        self.hand_over(lane, bytes.to_vec(), receipt);
    }

    fn send_dead_letter(
        &mut self,
        _topic: &str,
        input_topic: &str,
        letter: &DeadLetter,
        receipt: T,
    ) {
        self.hand_over(Lane::Letters, letter.place(input_topic).into_bytes(), receipt);
    }

    fn poll(&mut self, _time: Time) {}

    fn next_delivery(&mut self) -> Option<Delivery<T>> {
        loop {
            let told = self.line.borrow_mut().next_told()?;
            // Records that were given up before are no longer reported.
            let Some(receipt) = self.receipts.remove(&told.id) else { continue };
            let (offset, failure) = match told.result {
                Ok(offset) => (offset, None),
                Err(failure) => (-1, Some(failure)),
            };
            return Some(Delivery { receipt, offset, failure });
        }
    }

    fn must_be_polled(&self) -> bool {
        !self.receipts.is_empty()
    }

    fn fatal_error(&self) -> Option<String> {
        self.line.borrow_mut().fatal.take()
    }

    fn replace(&mut self) -> Vec<Delivery<T>> {
        let given_up = std::mem::take(&mut self.receipts).into_values();
        let failure = SendFailure { sentence: "given up".to_owned(), is_too_large: false };
        let delivery = |receipt| Delivery { receipt, offset: -1, failure: Some(failure.clone()) };
        given_up.map(delivery).collect()
    }
}
