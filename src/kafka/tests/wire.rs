//! The wire primitives: round trips and the edges of each length.

use crate::kafka::wire::{WireError, WireReader, WireWriter};

#[test]
fn variable_length_integers_are_read_as_they_were_written() {
    let signed = [0, 1, -1, 63, -64, 64, 8191, -8192, 8192, i32::MAX, i32::MIN];
    let longs = [0, -1, 1 << 20, i64::MAX, i64::MIN];
    let mut bytes = Vec::new();
    let mut writer = WireWriter::new(&mut bytes);
    signed.iter().for_each(|&value| writer.varint(value));
    longs.iter().for_each(|&value| writer.varlong(value));
    let mut reader = WireReader::new(&bytes);
    for value in signed {
        assert_eq!(reader.varint(), Ok(value));
    }
    for value in longs {
        assert_eq!(reader.varlong(), Ok(value));
    }
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn an_integer_that_is_too_long_is_an_error() {
    let too_long = WireError::VarintTooLong { at: 0 };
    assert_eq!(WireReader::new(&[0xff; 11]).varlong(), Err(too_long));
    let six_bytes = [0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    assert_eq!(WireReader::new(&six_bytes).unsigned_varint(), Err(too_long));
    let high_bit = [0xff, 0xff, 0xff, 0xff, 0x1f];
    assert_eq!(WireReader::new(&high_bit).unsigned_varint(), Err(too_long));
}

#[test]
fn an_unfinished_integer_is_truncated() {
    assert_eq!(
        WireReader::new(&[0x80, 0x80]).varint(),
        Err(WireError::Truncated { at: 0, wanted: 3 })
    );
    assert_eq!(WireReader::new(&[]).varint(), Err(WireError::Truncated { at: 0, wanted: 1 }));
}

#[test]
fn null_and_negative_lengths_are_told_apart() {
    assert_eq!(WireReader::new(&[0xff, 0xff]).nullable_string(false), Ok(None));
    assert_eq!(WireReader::new(&[0]).nullable_string(true), Ok(None));
    let negative = Err(WireError::NegativeLength { at: 0 });
    assert_eq!(WireReader::new(&[0xff, 0xfe]).nullable_string(false), negative);
    assert_eq!(WireReader::new(&[0xff; 4]).array(false), negative.map(|_| 0));
}

#[test]
fn a_tagged_field_cannot_be_read_beyond_its_end() {
    let mut reader = WireReader::new(&[1, 7, 2, 0, 9, 5]);
    assert_eq!(reader.tagged_fields(), Ok(1));
    let (tag, mut value) = reader.tagged_field().unwrap();
    assert_eq!((tag, value.i16(), value.i8().is_err()), (7, Ok(9), true));
    assert_eq!((reader.i8(), reader.finish()), (Ok(5), Ok(())));
}

#[test]
fn a_frame_is_prefixed_with_its_length() {
    let mut bytes = vec![9];
    let mut writer = WireWriter::new(&mut bytes);
    let start = writer.begin_frame();
    writer.string("abc", false);
    writer.end_frame(start);
    assert_eq!(bytes, [9, 0, 0, 0, 5, 0, 3, b'a', b'b', b'c']);
}
