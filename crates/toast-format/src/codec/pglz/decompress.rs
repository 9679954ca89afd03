//! pglz decompression, fast: runs of literals and matches are copied in wide pieces that may write
//! past their end, as long as there is room for it; near the ends of the stream and of the value
//! [`plain`] takes over, and it alone finds errors.
//!
//! A match's short form (3 to 17 bytes) is one wide copy and one byte; its long form four wide
//! copies, and more where it is longer than those. A match that repeats fewer than 16 bytes is
//! unrolled in a register first, since a load that overlaps a store just made must wait for it.
#![allow(
    unsafe_code,
    reason = "1.8 to 2.8 times as fast as the safe twin on text, JSON and executables"
)]

use super::MAX_OFFSET;
use super::plain::{self, StreamPosition};
use crate::codec::DecompressError;

/// Decompresses a whole value: `dst` is as long as the value, and the stream ends with it
/// (`pglz_decompress` with `check_complete`). Writes nothing but `dst`; what stands there after an
/// error is undefined.
///
/// # Errors
/// Where the stream is damaged, or gives less or more than `dst` holds.
pub fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let position = skip_ahead(src, dst);
    let end = plain::resume(src, dst, position, copy_match)?;
    plain::check_complete(src, dst, end)
}

/// Decompresses until `dst` is full or the stream ends, and says how many bytes that gave
/// (`pglz_decompress` without `check_complete`, as for a slice of a value). The stream may be cut;
/// [`maximum_compressed_size`](super::maximum_compressed_size) says where. What `dst` holds behind
/// those bytes is undefined.
///
/// # Errors
/// Where the stream is damaged, or ends inside a match.
pub fn decompress_prefix(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    let position = skip_ahead(src, dst);
    plain::resume(src, dst, position, copy_match).map(|end| end.raw)
}

/// A control byte, eight items of three bytes, and what a wide copy of literals reads behind them.
const STREAM_ROOM: usize = 1 + 8 * 3 + 8;
/// The most that one item writes from where it begins, if no more than that is left.
const ROOM: usize = 64;

/// How far a register filled with repetitions of 1 to 15 bytes carries: the largest multiple of
/// that number up to 16.
const STEP: [usize; 16] = [0, 16, 16, 15, 16, 15, 12, 14, 16, 9, 10, 11, 12, 13, 14, 15];

/// Decompresses whole groups of eight items, while there is room for wide copies and nothing is
/// wrong. Returns the beginning of the first group that is not done; parts of it may be written.
fn skip_ahead(src: &[u8], dst: &mut [u8]) -> StreamPosition {
    if src.len() < STREAM_ROOM || dst.len() < ROOM {
        return StreamPosition::default();
    }
    // SAFETY: `from` always points into `src`: where a group begins, at least STREAM_ROOM bytes are
    // left, and a group reads no more. `to` always points into `dst`, for these reasons:
    // * where a group begins, and where a short match does, `to` is at most `to_last`, so ROOM
    //   bytes are left; a long match moreover ends at `to_last` or before it;
    // * between two of these points `to` moves by at most a short match (17) and 8 literals, and
    //   the 8 bytes written for those lie within ROOM;
    // * a match writes at most ROOM bytes, or its length and less than 32 bytes more.
    // A match begins at `dst` or behind it, since its offset is at most what is written, and reads
    // no farther than it writes.
    unsafe {
        let dst_len = dst.len();
        let from_start = src.as_ptr();
        let to_start = dst.as_mut_ptr();
        let from_last = from_start.add(src.len() - STREAM_ROOM);
        let to_last = to_start.add(dst_len - ROOM);
        let mut from = from_start;
        let mut to = to_start;
        let position = |from: *const u8, to: *mut u8| StreamPosition {
            stream: from.offset_from_unsigned(from_start),
            raw: to.offset_from_unsigned(to_start),
        };
        while from <= from_last && to <= to_last {
            let group = position(from, to);
            // A bit behind the eight shows where they end.
            let mut control = u32::from(*from) | 0x100;
            from = from.add(1);
            loop {
                let literals = control.trailing_zeros();
                to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read());
                from = from.add(literals as usize);
                to = to.add(literals as usize);
                control >>= literals;
                if control == 1 {
                    break;
                }
                control >>= 1;
                let tag = usize::from(u16::from_le_bytes(from.cast::<[u8; 2]>().read()));
                let offset = (tag & 0xf0) << 4 | tag >> 8;
                let mut len = (tag & 0x0f) + 3;
                from = from.add(2);
                // Also rules out 0.
                if offset.wrapping_sub(1) >= to.offset_from_unsigned(to_start) {
                    return group;
                }
                if len < 18 {
                    if to > to_last {
                        return group;
                    }
                    copy_short(to, offset, len);
                } else {
                    len += usize::from(*from);
                    from = from.add(1);
                    if to_last.offset_from(to) < len.cast_signed() {
                        return group;
                    }
                    copy_long(to, offset, len);
                }
                to = to.add(len);
            }
        }
        position(from, to)
    }
}

/// Copies a match within `dst`; wide where there is room behind it.
fn copy_match(dst: &mut [u8], at: usize, offset: usize, len: usize) {
    let fits = offset > 0 && offset <= at && offset <= MAX_OFFSET;
    if fits && at < dst.len() && dst.len() - at >= len + ROOM {
        // SAFETY: `at` lies in `dst`, `offset` is between 1 and `at`, and behind the match there
        // is room for ROOM bytes.
        unsafe { copy_long(dst.as_mut_ptr().add(at), offset, len) }
    } else if len <= 32 && fits {
        for index in at..at + len {
            dst[index] = dst[index - offset];
        }
    } else {
        plain::copy_match(dst, at, offset, len);
    }
}

/// Copies the match of at most 17 bytes that lies `offset` before `to`.
///
/// # Safety
/// `offset` is not 0, and `offset` bytes before `to` and 32 from it on belong to one allocation that
/// may be written.
#[inline(always)]
unsafe fn copy_short(to: *mut u8, offset: usize, len: usize) {
    // SAFETY: the caller's; the last byte written is at STEP + 16, at most 32.
    unsafe {
        let from = to.sub(offset);
        if offset >= 16 || offset >= len {
            copy16(from, to);
            // The 17th; where the match is shorter, it is written over.
            *to.add(16) = *from.add(16);
        } else {
            let pattern = unroll(from, offset);
            to.cast::<[u8; 16]>().write(pattern);
            to.add(STEP[offset & 15]).cast::<[u8; 16]>().write(pattern);
        }
    }
}

/// Copies the match of any length that lies `offset` before `to`.
///
/// # Safety
/// `offset` is not 0, and `offset` bytes before `to` and `len + 32` and 64 from it on belong to one
/// allocation that may be written.
#[inline(always)]
unsafe fn copy_long(to: *mut u8, offset: usize, len: usize) {
    // SAFETY: the caller's; a loop writes less than 32 bytes past `len`.
    unsafe {
        let from = to.sub(offset);
        if offset >= 16 {
            // Each copy reads what is finished: at most 16 bytes less far than it writes.
            copy16(from, to);
            copy16(from.add(16), to.add(16));
            copy16(from.add(32), to.add(32));
            copy16(from.add(48), to.add(48));
            let mut done = 64;
            while done < len {
                copy16(from.add(done), to.add(done));
                copy16(from.add(done + 16), to.add(done + 16));
                done += 32;
            }
        } else {
            let pattern = unroll(from, offset);
            let step = STEP[offset & 15];
            let mut done = 0;
            while done < len {
                to.add(done).cast::<[u8; 16]>().write(pattern);
                done += step;
            }
        }
    }
}

/// Copies 16 bytes by way of a register: what overlaps is read before it is written.
///
/// # Safety
/// 16 bytes may be read at `from` and written at `to`.
#[inline(always)]
unsafe fn copy16(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's.
    unsafe { to.cast::<[u8; 16]>().write(from.cast::<[u8; 16]>().read()) }
}

/// The `len` bytes at `from`, 1 to 15, over and over.
///
/// # Safety
/// 16 bytes may be read at `from`.
#[inline(always)]
unsafe fn unroll(from: *const u8, len: usize) -> [u8; 16] {
    // SAFETY: the caller's.
    let bytes = unsafe { from.cast::<[u8; 16]>().read() };
    if len == 1 {
        return [bytes[0]; 16];
    }
    let mut bits = 8 * len;
    let mut pattern = u128::from_le_bytes(bytes) & ((1 << bits) - 1);
    while bits < 128 {
        pattern |= pattern << bits;
        bits *= 2;
    }
    pattern.to_le_bytes()
}
