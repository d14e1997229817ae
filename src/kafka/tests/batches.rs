//! Valid batches, and batches with one invalid field.

use crate::kafka::codec::Decompressor;
use crate::kafka::record_batch::{self, Batch, BatchError, BatchReason, BatchStart, HeaderScan};
use kafka_protocol::records::{
    Compression, Record as OracleRecord, RecordBatchDecoder, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};

use crate::testing::batch_builder::{
    BATCH_BYTES_MAX, BatchPlan, Owned, PACKINGS, append_record, read_batch, read_batches, records,
    seal,
};

/// Scans the result of a Fetch for this offset, which may lie within the first batch.
fn scan_headers(bytes: &[u8], offset: i64, bytes_max: usize) -> Result<HeaderScan, BatchError> {
    record_batch::scan_headers(bytes, offset, BatchStart::up_to(offset), bytes_max)
}

/// The reason why a batch with this plan and a valid checksum is refused.
fn refusal(plan: &BatchPlan) -> BatchReason {
    let error = read_batch(&mut plan.build(), 0).unwrap_err();
    assert_eq!(error.offset, plan.base_offset);
    error.reason
}

#[test]
fn records_come_back_as_they_were_written_with_every_codec() {
    let written = records(1000, 3000);
    let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
    // Twice, so that the codecs' reused state is covered.
    for packing in PACKINGS.into_iter().chain(PACKINGS) {
        let mut bytes = BatchPlan { packing, ..BatchPlan::new(&written) }.build();
        assert_eq!(read_batches(&mut bytes, 0, &mut decompressor).unwrap(), written, "{packing:?}");
    }
}

#[test]
fn another_implementation_reads_what_the_builder_writes_and_writes_what_is_read() {
    let written: Vec<Owned> = records(40, 500);
    let mut bytes = bytes::Bytes::from(BatchPlan::new(&written).build());
    let set = RecordBatchDecoder::decode(&mut bytes).unwrap();
    let decoded: Vec<Owned> = set.records.iter().map(from_oracle).collect();
    assert_eq!(decoded, written);

    let mut encoded = bytes::BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    RecordBatchEncoder::encode(
        &mut encoded,
        written.iter().map(to_oracle).collect::<Vec<_>>().iter(),
        &options,
    )
    .unwrap();
    let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
    assert_eq!(read_batches(&mut encoded, 0, &mut decompressor).unwrap(), written);
}

fn from_oracle(record: &OracleRecord) -> Owned {
    Owned {
        offset: record.offset,
        timestamp_ms: record.timestamp,
        key: record.key.as_ref().map(|key| key.to_vec()),
        value: record.value.as_ref().map(|value| value.to_vec()),
    }
}

fn to_oracle(record: &Owned) -> OracleRecord {
    OracleRecord {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 0,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: TimestampType::Creation,
        offset: record.offset,
        sequence: record.offset as i32,
        timestamp: record.timestamp_ms,
        key: record.key.clone().map(Into::into),
        value: record.value.clone().map(Into::into),
        headers: Default::default(),
    }
}

#[test]
fn records_below_the_asked_offset_are_left_out() {
    let written = records(10, 20);
    let mut bytes = BatchPlan::new(&written).build();
    assert_eq!(read_batch(&mut bytes, 17).unwrap(), written[7..]);
    assert_eq!(read_batch(&mut bytes, 30).unwrap(), []);
}

#[test]
fn compaction_may_leave_gaps_or_nothing_at_all() {
    let mut kept = records(10, 20);
    kept.retain(|record| record.offset % 4 == 1);
    let mut plan = BatchPlan { base_offset: 10, last_offset_delta: 19, ..BatchPlan::new(&kept) };
    plan.body.clear();
    for record in &kept {
        append_record(record, 10, plan.base_timestamp_ms, 0, &mut plan.body);
    }
    let mut bytes = plan.build();
    assert_eq!(read_batch(&mut bytes, 0).unwrap(), kept);
    assert_eq!(scan_headers(&bytes, 10, BATCH_BYTES_MAX).unwrap().next_offset, 30);

    let mut empty = BatchPlan { record_count: 0, body: Vec::new(), ..plan }.build();
    assert_eq!(read_batch(&mut empty, 0).unwrap(), []);
    assert_eq!(scan_headers(&empty, 10, BATCH_BYTES_MAX).unwrap().next_offset, 30);
}

#[test]
fn record_headers_are_passed_over() {
    let written = records(0, 4);
    let mut plan = BatchPlan::new(&written);
    plan.body.clear();
    for (headers, record) in (0..).zip(&written) {
        append_record(record, 0, plan.base_timestamp_ms, headers, &mut plan.body);
    }
    assert_eq!(read_batch(&mut plan.build(), 0).unwrap(), written);
}

#[test]
fn with_log_append_time_all_records_have_the_batch_time() {
    let written = records(0, 30);
    let plan = BatchPlan { attributes: 1 << 3, max_timestamp_ms: 77, ..BatchPlan::new(&written) };
    let read = read_batch(&mut plan.build(), 0).unwrap();
    assert_eq!(read.len(), 30);
    assert!(read.iter().all(|record| record.timestamp_ms == 77));
}

#[test]
fn a_scan_ends_before_a_batch_that_is_cut_off() {
    let first = BatchPlan::new(&records(5, 3)).build();
    let mut both = first.clone();
    both.extend(BatchPlan::new(&records(8, 4)).build());
    let whole = HeaderScan {
        next_offset: 12,
        leader_epoch: Some(7),
        batches: 2,
        bytes: both.len(),
        records: 7,
    };
    assert_eq!(scan_headers(&both, 6, BATCH_BYTES_MAX).unwrap(), whole);
    for cut in first.len()..both.len() {
        let expected =
            HeaderScan { next_offset: 8, batches: 1, bytes: first.len(), records: 3, ..whole };
        assert_eq!(scan_headers(&both[..cut], 6, BATCH_BYTES_MAX).unwrap(), expected);
    }
    for cut in 0..first.len() {
        let scanned = scan_headers(&first[..cut], 6, BATCH_BYTES_MAX).unwrap();
        assert_eq!((scanned.next_offset, scanned.batches), (6, 0));
    }
}

#[test]
fn batches_out_of_order_are_refused() {
    let mut bytes = BatchPlan::new(&records(8, 4)).build();
    bytes.extend(BatchPlan::new(&records(11, 4)).build());
    let refused = BatchError { offset: 11, reason: BatchReason::Offsets };
    assert_eq!(scan_headers(&bytes, 8, BATCH_BYTES_MAX), Err(refused));
    let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
    assert_eq!(read_batches(&mut bytes, 0, &mut decompressor), Err(refused));
}

#[test]
fn a_batch_begins_where_the_one_before_ends_and_the_first_one_where_it_is_expected() {
    let batch = |offset| BatchPlan::new(&records(offset, 4)).build();
    let gap = |expected| Some(BatchReason::Gap { expected });
    for (start, offset, reason) in [
        (BatchStart::at(8), 8, None),
        (BatchStart::at(8), 7, Some(BatchReason::Offsets)),
        (BatchStart::at(8), 9, gap(8)),
        (BatchStart::up_to(8), 5, None),
        (BatchStart::up_to(8), 8, None),
        (BatchStart::up_to(8), 1 << 40, gap(8)),
    ] {
        let scanned = record_batch::scan_headers(&batch(offset), 8, start, BATCH_BYTES_MAX);
        let refused = reason.map(|reason| BatchError { offset, reason });
        assert_eq!(scanned.err(), refused, "{start:?}");
    }
    for (second, reason) in [
        (12, None),
        (13, gap(12)),
        (11, Some(BatchReason::Offsets)),
        (8, Some(BatchReason::Offsets)),
    ] {
        let both = [batch(8), batch(second)].concat();
        let refused = reason.map(|reason| BatchError { offset: second, reason });
        assert_eq!(scan_headers(&both, 8, BATCH_BYTES_MAX).err(), refused);
    }
}

#[test]
fn an_old_format_is_told_from_a_cut_off_batch() {
    for magic in [0, 1, 3, -1] {
        let mut bytes = BatchPlan::new(&records(3, 1)).build();
        bytes[16] = magic as u8;
        let refused = BatchError { offset: 3, reason: BatchReason::Magic(magic) };
        assert_eq!(scan_headers(&bytes[..17], 0, BATCH_BYTES_MAX), Err(refused));
        assert!(refused.to_string().contains("offset 3"));
    }
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    for (length, reason) in [
        (48, BatchReason::LengthTooSmall(48)),
        (-1, BatchReason::LengthTooSmall(-1)),
        (i32::MIN, BatchReason::LengthTooSmall(i32::MIN)),
        (
            BATCH_BYTES_MAX as i32,
            BatchReason::TooLarge { bytes: BATCH_BYTES_MAX + 12, bytes_max: BATCH_BYTES_MAX },
        ),
    ] {
        let mut bytes = BatchPlan::new(&records(0, 1)).build();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(read_batch(&mut bytes, 0).unwrap_err().reason, reason);
    }
}

/// A change that makes one field wrong, and the expected reason.
type Lie = (fn(&mut BatchPlan), BatchReason);

#[test]
fn header_fields_that_lie_are_refused() {
    let lies: [Lie; 9] = [
        (|plan| plan.base_offset = -1, BatchReason::Offsets),
        (|plan| plan.base_offset = i64::MAX - 4, BatchReason::Offsets),
        (|plan| plan.base_offset = i64::MAX, BatchReason::Offsets),
        (|plan| plan.last_offset_delta = -1, BatchReason::Offsets),
        (|plan| plan.record_count = -1, BatchReason::RecordCount(-1)),
        (|plan| plan.record_count = 6, BatchReason::RecordCount(6)),
        (|plan| plan.attributes = 5, BatchReason::UnknownCodec(5)),
        (|plan| plan.attributes = 7, BatchReason::UnknownCodec(7)),
        (|plan| plan.base_timestamp_ms = i64::MAX, BatchReason::RecordTime(1)),
    ];
    let plan = BatchPlan::new(&records(100, 5));
    for (lie, reason) in lies {
        let mut plan = plan.clone();
        lie(&mut plan);
        assert_eq!(refusal(&plan), reason);
    }
}

#[test]
fn a_record_count_that_the_bytes_do_not_hold_is_refused() {
    let mut plan = BatchPlan::new(&records(100, 5));
    plan.last_offset_delta = 8;
    plan.record_count = 9;
    assert_eq!(refusal(&plan), BatchReason::RecordCount(9));
    plan.record_count = 4;
    let trailing = plan.body.len() - offset_of_record(&plan.body, 4);
    assert_eq!(refusal(&plan), BatchReason::Trailing(trailing));
}

/// Position of the record with this index.
fn offset_of_record(body: &[u8], place: usize) -> usize {
    let mut reader = crate::kafka::wire::WireReader::new(body);
    for _ in 0..place {
        let length = reader.varint().unwrap();
        reader.skip(length as usize).unwrap();
    }
    reader.at()
}

#[test]
fn a_record_beyond_the_last_offset_or_out_of_order_is_refused() {
    let written = records(100, 5);
    let plan = BatchPlan::new(&written);
    let short = BatchPlan { last_offset_delta: 4, record_count: 5, ..plan.clone() };
    for (place, offset) in [(4, 105), (4, 103), (2, 101), (0, 99)] {
        let mut moved = written.clone();
        moved[place].offset = offset;
        let mut body = Vec::new();
        for record in &moved {
            append_record(record, 100, plan.base_timestamp_ms, 0, &mut body);
        }
        let refused = refusal(&BatchPlan { body, ..short.clone() });
        assert_eq!(refused, BatchReason::RecordOffset(place as i32));
    }
}

#[test]
fn a_record_length_that_lies_is_refused() {
    let written = records(0, 3);
    for change in [-2_i8, 2] {
        let mut plan = BatchPlan::new(&written);
        // The length of such a small record is one byte, in zigzag form.
        plan.body[0] = plan.body[0].wrapping_add_signed(change);
        assert!(matches!(
            refusal(&plan),
            BatchReason::Record { index: 0, .. } | BatchReason::RecordLength(0)
        ));
    }
    let mut plan = BatchPlan::new(&written);
    plan.body.push(0);
    assert_eq!(refusal(&plan), BatchReason::Trailing(1));
}

#[test]
fn header_counts_that_lie_are_refused() {
    for headers in [-1, 1, i32::MAX] {
        let mut plan = BatchPlan::new(&records(0, 1));
        let mut body = Vec::new();
        let fields = &plan.body[1..plan.body.len() - 1];
        let mut writer = crate::kafka::wire::WireWriter::new(&mut body);
        writer.raw(fields);
        writer.varint(headers);
        let length = body.len() as i32;
        plan.body.clear();
        crate::kafka::wire::WireWriter::new(&mut plan.body).varint(length);
        plan.body.extend(body);
        assert!(matches!(
            refusal(&plan),
            BatchReason::Record { index: 0, .. } | BatchReason::RecordLength(0)
        ));
    }
}

#[test]
fn a_wrong_checksum_is_refused() {
    let mut bytes = BatchPlan::new(&records(9, 3)).build();
    bytes[70] ^= 1;
    let error = read_batch(&mut bytes, 0).unwrap_err();
    assert!(matches!(error.reason, BatchReason::Crc { .. }), "{error}");
    seal(&mut bytes);
    let sealed = read_batch(&mut bytes, 0).map_err(|error| error.reason);
    assert!(!matches!(sealed, Err(BatchReason::Crc { .. })), "the checksum is over what is there");
}

#[test]
fn a_header_is_not_believed_before_the_checksum_holds() {
    // Where a batch ends and who wrote it decide whether its records are skipped unread.
    for (place, what) in [(26, "last offset delta"), (22, "attributes"), (50, "producer id")] {
        let mut bytes = BatchPlan::new(&records(9, 3)).build();
        bytes[place] ^= 0x10;
        let error = Batch::read(&mut bytes, BATCH_BYTES_MAX).unwrap_err();
        assert!(matches!(error.reason, BatchReason::Crc { .. }), "{what}: {error}");
    }
}
