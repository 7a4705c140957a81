//! Frames: the unit of compression. A frame holds one chunk, several small ones, or one stored page.
//!
//! A stored frame is `[codec: u8][plain length: u32 LE][payload]`; `host/docs/FORMAT.md` specifies it. A frame says how long it is when
//! decoded, and decoding gives exactly that or an error: no more than [`FRAME_PLAIN_MAX`] bytes are ever allocated for one.
//!
//! Chunks are checked by their ids, and so are the bodies of pages, but not the hints beside them. So a page's frame is always zstd data with
//! a content checksum (RFC 8878, section 3.1.1): a damaged hint is found in the page that holds it, not where it leads.

use std::cell::RefCell;

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use crate::error::{Error, Result};
use crate::workspace::page::CHUNK_MAX;

/// Length in bytes of a frame's header.
pub const FRAME_HEADER: usize = 5;
/// Most plain bytes of a frame.
pub const FRAME_PLAIN_MAX: usize = CHUNK_MAX;
/// Most stored bytes of a frame. A frame that doesn't get smaller is stored raw, so the raw form is the longest.
pub const FRAME_STORED_MAX: usize = FRAME_HEADER + FRAME_PLAIN_MAX;
/// Plain bytes at which a group of small objects becomes a frame.
pub const FRAME_TARGET: usize = 256 << 10;

const CODEC_RAW: u8 = 0;
const CODEC_ZSTD: u8 = 1;
const ZSTD_LEVEL: i32 = 3;
/// Most bytes that zstd adds to a page that it can't compress: headers and the checksum.
const ZSTD_FRAMING: usize = 64;

thread_local! {
    // A compression context is about 1 MiB of tables: made once a thread, not once a frame.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static CHECKED_COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Encodes the plain bytes of content as a stored frame: zstd level 3, or raw when that saves less than 5 %.
///
/// # Errors
/// `Internal` when `plain` is empty or longer than [`FRAME_PLAIN_MAX`], or when zstd fails.
pub fn encode(plain: &[u8]) -> Result<Vec<u8>> {
    check_length(plain)?;
    let payload = COMPRESSOR.with_borrow_mut(|slot| compress(slot, plain, false))?;
    if payload.len() <= plain.len() - plain.len().div_ceil(20) {
        return Ok(join(CODEC_ZSTD, plain.len(), &payload));
    }
    Ok(join(CODEC_RAW, plain.len(), plain))
}

/// Encodes a stored page as a stored frame: zstd level 3 with a content checksum.
///
/// # Errors
/// As [`encode`].
pub fn encode_page(plain: &[u8]) -> Result<Vec<u8>> {
    check_length(plain)?;
    let payload = CHECKED_COMPRESSOR.with_borrow_mut(|slot| compress(slot, plain, true))?;
    Ok(join(CODEC_ZSTD, plain.len(), &payload))
}

fn check_length(plain: &[u8]) -> Result<()> {
    if (1..=FRAME_PLAIN_MAX).contains(&plain.len()) {
        return Ok(());
    }
    Err(Error::internal(format!("a frame of {} plain bytes was asked for; 1 to {FRAME_PLAIN_MAX} are possible", plain.len())))
}

fn compress(slot: &mut Option<Compressor<'static>>, plain: &[u8], checksum: bool) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::internal("zstd can't compress a frame").source(e);
    let compressor = match slot {
        Some(compressor) => compressor,
        None => {
            let compressor = slot.insert(Compressor::new(ZSTD_LEVEL).map_err(failed)?);
            compressor.include_checksum(checksum).map_err(failed)?;
            compressor
        }
    };
    compressor.compress(plain).map_err(failed)
}

fn join(codec: u8, length: usize, payload: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(FRAME_HEADER + payload.len());
    stored.push(codec);
    // At most FRAME_PLAIN_MAX, so the upper half is zero.
    stored.extend_from_slice(&(length as u64).to_le_bytes()[..4]);
    stored.extend_from_slice(payload);
    stored
}

/// Returns how many bytes the frame says it has when decoded: 1 to [`FRAME_PLAIN_MAX`].
///
/// # Errors
/// `Damaged` (code `frame_damaged`) when the header is cut off or its numbers are out of bounds.
pub fn plain_len(stored: &[u8]) -> Result<usize> {
    let Some((&[_, a, b, c, d], payload)) = stored.split_first_chunk::<FRAME_HEADER>() else {
        return Err(damaged(format!("a frame of {} bytes is shorter than its header", stored.len())));
    };
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length == 0 || length > FRAME_PLAIN_MAX {
        return Err(damaged(format!("the frame declares {length} plain bytes; 1 to {FRAME_PLAIN_MAX} are allowed")));
    }
    if payload.len() > length + ZSTD_FRAMING {
        return Err(damaged(format!("the frame's payload of {} bytes is longer than the {length} plain bytes it declares", payload.len())));
    }
    Ok(length)
}

/// Decodes a stored frame. A raw frame's bytes are shared with `stored`, not copied.
///
/// # Errors
/// `Damaged` (code `frame_damaged`) when the frame is not exactly what its header says.
pub fn decode(stored: &Bytes) -> Result<Bytes> {
    let length = plain_len(stored)?;
    let payload = &stored[FRAME_HEADER..];
    match stored[0] {
        CODEC_RAW if payload.len() == length => Ok(stored.slice(FRAME_HEADER..)),
        CODEC_RAW => Err(damaged(format!("the raw frame has {} of {length} bytes", payload.len()))),
        CODEC_ZSTD => unzstd(payload, length).map(Bytes::from),
        // A newer format says so in the head and in the page, so this isn't one.
        codec => Err(damaged(format!("the frame has codec {codec}; 0 and 1 are allowed"))),
    }
}

fn unzstd(payload: &[u8], length: usize) -> Result<Vec<u8>> {
    // One zstd frame and nothing behind it; its own length field, which our encoder always writes, has to agree. So a bomb ends here.
    match zstd_safe::find_frame_compressed_size(payload) {
        Ok(size) if size == payload.len() => {}
        Ok(size) => return Err(damaged(format!("{} bytes follow the zstd data", payload.len() - size))),
        Err(_) => return Err(damaged("the frame isn't zstd data, or is cut off")),
    }
    match zstd_safe::get_frame_content_size(payload) {
        Ok(Some(size)) if size == length as u64 => {}
        Ok(Some(size)) => return Err(damaged(format!("the zstd data declares {size} bytes, the frame {length}"))),
        Ok(None) | Err(_) => return Err(damaged("the zstd data doesn't declare its length")),
    }
    // One call into a buffer of exactly the declared size: zstd needs no window beside it, and fails rather than write more.
    let mut plain = Vec::with_capacity(length);
    let written = DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            None => slot.insert(Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(payload, &mut plain)
    });
    match written {
        Ok(written) if written == length && plain.len() == length => Ok(plain),
        Ok(written) => Err(damaged(format!("the frame decodes to {written} of {length} bytes"))),
        Err(e) => Err(damaged("the frame can't be decoded").source(e)),
    }
}

fn damaged(message: impl Into<String>) -> Error {
    Error::damaged(message).code("frame_damaged")
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    fn framed(codec: u8, length: u32, payload: &[u8]) -> Bytes {
        let mut stored = vec![codec];
        stored.extend_from_slice(&length.to_le_bytes());
        stored.extend_from_slice(payload);
        stored.into()
    }

    #[test]
    fn text_is_compressed_and_noise_is_raw() {
        let text = b"fn main() { println!(\"hello\"); }\n".repeat(500);
        let stored = Bytes::from(encode(&text).unwrap());
        assert_eq!(stored[0], CODEC_ZSTD);
        assert!(stored.len() < text.len() / 4);
        assert_eq!(decode(&stored).unwrap(), text);

        for len in [1, 100, FRAME_PLAIN_MAX] {
            let stored = Bytes::from(encode(&noise(len)).unwrap());
            assert_eq!(stored[0], CODEC_RAW);
            assert_eq!(stored.len(), FRAME_HEADER + len);
            assert_eq!(decode(&stored).unwrap(), noise(len));
        }
        assert!(encode(&[]).is_err());
        assert!(encode(&vec![0; FRAME_PLAIN_MAX + 1]).is_err());
    }

    #[test]
    fn a_page_has_a_checksum_also_when_it_does_not_compress() {
        for plain in [&b"x"[..], &noise(300), &noise(20_000), &b"page page page page".repeat(50)] {
            let stored = encode_page(plain).unwrap();
            assert_eq!(decode(&stored.clone().into()).unwrap(), plain);
            for at in 0..stored.len() {
                let mut bad = stored.clone();
                bad[at] ^= 1 << (at % 8);
                // Some bits have no meaning; none gives other bytes.
                match decode(&bad.into()) {
                    Ok(decoded) => assert_eq!(decoded, plain, "{at}"),
                    Err(error) => assert_eq!(error.stable_code(), "frame_damaged"),
                }
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_decoded() {
        // 1 GiB of zeros is about 32 KiB of zstd.
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.set_pledged_src_size(Some(1 << 30)).unwrap();
        encoder.include_contentsize(true).unwrap();
        let block = vec![0_u8; 1 << 20];
        for _ in 0..1024 {
            std::io::Write::write_all(&mut encoder, &block).unwrap();
        }
        let bomb = encoder.finish().unwrap();
        assert!(bomb.len() < 256 << 10, "{}", bomb.len());
        let error = decode(&framed(CODEC_ZSTD, 1 << 20, &bomb)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.message().contains("declares"), "{error:?}");

        // The same without a length in the zstd header, and one that lies about it: 2 MiB said to be 1 MiB.
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        std::io::Write::write_all(&mut encoder, &vec![0; 2 << 20]).unwrap();
        assert_eq!(decode(&framed(CODEC_ZSTD, 1 << 20, &encoder.finish().unwrap())).unwrap_err().kind(), ErrorKind::Damaged);
        let mut liar = zstd::bulk::compress(&vec![0; 2 << 20], 3).unwrap();
        let at = liar.windows(4).position(|w| w == (2_u32 << 20).to_le_bytes()).unwrap();
        liar[at..at + 4].copy_from_slice(&(1_u32 << 20).to_le_bytes());
        assert_eq!(decode(&framed(CODEC_ZSTD, 1 << 20, &liar)).unwrap_err().kind(), ErrorKind::Damaged);
    }

    #[test]
    fn odd_frames_are_refused() {
        let good = zstd::bulk::compress(&[7; 1000], 3).unwrap();
        assert!(decode(&framed(CODEC_ZSTD, 1000, &good)).is_ok());
        let mut twice = good.clone();
        twice.extend_from_slice(&good);
        let mut skippable = good.clone();
        skippable.extend_from_slice(&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0]);
        for (what, stored) in [
            ("empty", Bytes::new()),
            ("header only", framed(CODEC_RAW, 1, &[])),
            ("no length", Bytes::from_static(&[0, 1, 0])),
            ("zero length", framed(CODEC_RAW, 0, &[])),
            ("too long", framed(CODEC_ZSTD, FRAME_PLAIN_MAX as u32 + 1, &good)),
            ("short raw", framed(CODEC_RAW, 3, &[1, 2])),
            ("long raw", framed(CODEC_RAW, 3, &[1, 2, 3, 4])),
            ("unknown codec", framed(2, 3, &[1, 2, 3])),
            ("other length", framed(CODEC_ZSTD, 1001, &good)),
            ("cut off", framed(CODEC_ZSTD, 1000, &good[..good.len() - 1])),
            ("two zstd frames", framed(CODEC_ZSTD, 2000, &twice)),
            ("skippable behind", framed(CODEC_ZSTD, 1000, &skippable)),
            ("not zstd", framed(CODEC_ZSTD, 1000, b"plain text")),
        ] {
            assert_eq!(decode(&stored).unwrap_err().stable_code(), "frame_damaged", "{what}");
        }
    }

    #[test]
    fn no_flipped_byte_gives_the_same_plain_bytes_or_a_panic() {
        let plain = b"some text that compresses, some text that compresses, some text".repeat(4);
        let stored = encode(&plain).unwrap();
        for at in 0..stored.len() {
            for bit in 0..8 {
                let mut bad = stored.clone();
                bad[at] ^= 1 << bit;
                // Decoding may succeed with other bytes; the object's hash catches that. It never succeeds with another length.
                if let Ok(decoded) = decode(&bad.into()) {
                    assert_eq!(decoded.len(), plain.len());
                }
            }
        }
    }
}
