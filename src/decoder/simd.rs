//! Vector instructions that not every processor has: detected once, then used without further
//! checks.
//!
//! This module contains only what the compiler cannot check: that the processor has the
//! instructions, and that loads and stores stay within their arrays.

// Functions for these processors may only be called there, and vector loads take pointers.
#![allow(unsafe_code)]

use super::RecordPosition;
#[cfg(target_arch = "x86_64")]
use super::narrow;
use super::shape::{RecordWindow, Shape, ShapeList};
#[cfg(target_arch = "x86_64")]
use super::wide;
use crate::kit::event_list::Events;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Proof that the processor has these instructions. Only this module can create one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processor(Vectors);

#[derive(Clone, Copy, Debug)]
enum Vectors {
    /// AVX2, BMI1, BMI2, LZCNT and POPCNT: Haswell, Zen, and later.
    #[cfg(target_arch = "x86_64")]
    Narrow,
    /// Also AVX-512 F, BW, DQ, VL, VBMI and VBMI2: Ice Lake, Zen 4, and later.
    #[cfg(target_arch = "x86_64")]
    Wide,
}

impl Processor {
    /// Detects the supported instruction sets, the best first.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn detect() -> impl Iterator<Item = Processor> {
        let has_narrow = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let has_wide = has_narrow
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2");
        let all = [(has_wide, Vectors::Wide), (has_narrow, Vectors::Narrow)];
        all.into_iter().filter_map(|(has, vectors)| has.then_some(Processor(vectors)))
    }

    /// Other processors have none of these: the other tiers read their records.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn detect() -> impl Iterator<Item = Processor> {
        std::iter::empty()
    }

    /// Decodes a record of a known shape and adds the event. Returns the shape.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub(super) fn read<'s>(
        self,
        shapes: &'s ShapeList,
        origin: RecordPosition,
        window: &RecordWindow,
        bytes: usize,
        events: &mut Events,
    ) -> Option<&'s Shape> {
        match self.0 {
            // SAFETY: the processor has the instructions that the function requires.
            #[cfg(target_arch = "x86_64")]
            Vectors::Narrow => unsafe { narrow::read(shapes, origin, window, bytes, events) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Wide => unsafe { wide::read(shapes, origin, window, bytes, events) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! loads {
    ($(
        $(#[$doc:meta])*
        $name:ident($array:ty) -> $vector:ty, $feature:literal, $load:ident;
    )*) => {$(
        $(#[$doc])*
        #[inline]
        #[target_feature(enable = $feature)]
        pub(super) fn $name(array: &$array) -> $vector {
            const { assert!(size_of::<$array>() == size_of::<$vector>()) };
            // SAFETY: the array is as long as the read, which needs no alignment.
            unsafe { $load(array.as_ptr().cast()) }
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
loads! {
    /// Loads sixteen bytes.
    load_16([u8; 16]) -> __m128i, "sse2", _mm_loadu_si128;
    /// Loads thirty-two bytes.
    load_32([u8; 32]) -> __m256i, "avx2", _mm256_loadu_si256;
    /// Loads four numbers.
    load_4([i64; 4]) -> __m256i, "avx2", _mm256_loadu_si256;
    /// Loads sixty-four bytes.
    load_64([u8; 64]) -> __m512i, "avx512f", _mm512_loadu_si512;
    /// Loads eight numbers.
    load_8([[i64; 4]; 2]) -> __m512i, "avx512f", _mm512_loadu_si512;
}

/// Stores four numbers.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_4(numbers: &mut [u64; 4], values: __m256i) {
    // SAFETY: the array is as long as the write, which needs no alignment.
    unsafe { _mm256_storeu_si256(numbers.as_mut_ptr().cast(), values) }
}

/// Stores eight numbers.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store_8(numbers: &mut [u64; 8], values: __m512i) {
    // SAFETY: the array is as long as the write, which needs no alignment.
    unsafe { _mm512_storeu_si512(numbers.as_mut_ptr().cast(), values) }
}
