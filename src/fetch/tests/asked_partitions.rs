//! How many bytes of each partition a Fetch asks for.

use super::options;
use crate::fetch::FetchOptions;
use crate::fetch::asked_partitions::share_bytes;

#[test]
fn partitions_share_a_response_once_so_many_are_behind_that_it_holds_few_of_them() {
    let (fetch_bytes_max, partition_bytes_max) = (2 << 20, 1 << 20);
    let wide = FetchOptions { fetch_bytes_max, partition_bytes_max, ..options() };
    let narrow = FetchOptions { partition_bytes_max: 64 << 10, ..wide.clone() };
    let shares = [0, 1, 4, 5, 16, 32, 64, 1_024].map(|behind| share_bytes(&wide, behind) >> 10);
    assert_eq!(shares, [1_024, 1_024, 1_024, 819, 256, 128, 128, 128]);
    assert_eq!([1, 64].map(|behind| share_bytes(&narrow, behind) >> 10), [64, 64], "as configured");
}
