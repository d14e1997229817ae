//! The reasons why a record is not an event.

/// Why a record is not an event. The record goes to the dead-letter topic and the stream continues.
///
/// If several reasons apply, the first one found counts: the decoder checks the value as a whole,
/// then its JSON, then its fields in order, then for missing fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Reject {
    /// Kafka's null value.
    #[error("the record has no value, so it is not an event")]
    NullValue,
    /// An empty value.
    #[error("the record's value is empty")]
    EmptyValue,
    /// More bytes than [`crate::kit::event::RECORD_BYTES_MAX`].
    #[error("the record is longer than 16384 bytes")]
    TooLong,
    /// Bytes that are not UTF-8.
    #[error("the record is not valid UTF-8")]
    NotUtf8,
    /// Brackets nested deeper than [`crate::kit::event::JSON_DEPTH_MAX`].
    #[error("the record's JSON is nested deeper than 8 levels")]
    TooDeep,
    /// A number, in any field, that is malformed or too large for 64 bits or a double.
    #[error("a number is malformed, or fits no 64-bit integer and no finite double")]
    InvalidNumber,
    /// Bytes after the end of the document.
    #[error("more bytes follow the end of the record's JSON")]
    TrailingBytes,
    /// Any other JSON syntax error.
    #[error("the record is not valid JSON")]
    InvalidJson,
    /// JSON, but an array or a scalar.
    #[error("the record's JSON is not an object")]
    NotAnObject,
    /// A known field that occurs twice in one object.
    #[error("a known field occurs twice")]
    DuplicateField,
    /// A known field with a value of the wrong JSON type, including `null`.
    #[error("a field's value has the wrong type")]
    WrongType,
    /// A known field with a value of the right type that is out of range.
    #[error("a field's value is out of its range")]
    OutOfRange,
    /// An unknown `type`.
    #[error("the event's type is unknown")]
    UnknownType,
    /// A field is missing that every event, or this type of event, requires.
    #[error("a field that this type of event requires is missing")]
    MissingField,
    /// The record panicked the engine three times, or an operator skipped it.
    #[error("every replay skips the record: it panicked the engine, or an operator asked for it")]
    Skipped,
    /// The record is in an unreadable batch, which an operator has skipped.
    #[error("the batch cannot be read, and is skipped")]
    UnreadableBatch,
}

impl Reject {
    /// All reasons, in the order of their numbers.
    pub(crate) const ALL: [Reject; 16] = [
        Reject::NullValue,
        Reject::EmptyValue,
        Reject::TooLong,
        Reject::NotUtf8,
        Reject::TooDeep,
        Reject::InvalidNumber,
        Reject::TrailingBytes,
        Reject::InvalidJson,
        Reject::NotAnObject,
        Reject::DuplicateField,
        Reject::WrongType,
        Reject::OutOfRange,
        Reject::UnknownType,
        Reject::MissingField,
        Reject::Skipped,
        Reject::UnreadableBatch,
    ];

    /// Reasons that the decoder does not produce: those of records that every replay skips.
    pub(crate) const PASSED_OVER: [Reject; 2] = [Reject::Skipped, Reject::UnreadableBatch];

    /// The name in metrics and dead letters.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reject::NullValue => "null_value",
            Reject::EmptyValue => "empty_value",
            Reject::TooLong => "too_long",
            Reject::NotUtf8 => "not_utf8",
            Reject::TooDeep => "too_deep",
            Reject::InvalidNumber => "invalid_number",
            Reject::TrailingBytes => "trailing_bytes",
            Reject::InvalidJson => "invalid_json",
            Reject::NotAnObject => "not_an_object",
            Reject::DuplicateField => "duplicate_field",
            Reject::WrongType => "wrong_type",
            Reject::OutOfRange => "out_of_range",
            Reject::UnknownType => "unknown_type",
            Reject::MissingField => "missing_field",
            Reject::Skipped => "skipped",
            Reject::UnreadableBatch => "unreadable_batch",
        }
    }
}

// The sentences above contain these two limits.
const _: () = assert!(crate::kit::event::RECORD_BYTES_MAX == 16_384);
const _: () = assert!(crate::kit::event::JSON_DEPTH_MAX == 8);

#[cfg(test)]
mod tests {
    use super::Reject;

    #[test]
    fn the_list_of_all_rejects_is_in_the_order_of_their_numbers() {
        for (number, reject) in Reject::ALL.into_iter().enumerate() {
            assert_eq!(reject as usize, number);
        }
    }
}
