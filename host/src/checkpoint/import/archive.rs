//! Reads a tar archive that nobody vouches for: POSIX.1-2001 (ustar and pax) and what GNU tar writes.
//!
//! Nothing that an archive says of itself makes this read or hold more than a bound: headers are counted, and a file is as long as its header says.
//! A compressed bomb so ends at the limits of what is being made.

use std::io::{self, BufRead as _, BufReader, Read};

use super::{Out, PIECE, Step};
use crate::error::{Error, Result};
use crate::workspace::Limits;
use crate::workspace::path::display;

/// Length of a block in bytes.
const BLOCK: usize = 512;
/// Most bytes of all extended headers of one entry: a path and a link's target, and what else a maker adds.
const EXTENDED_MAX: u64 = 1 << 20;

/// What extended headers say of the entry behind them.
#[derive(Default)]
struct Extended {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<i64>,
    bytes: u64,
}

/// Undoes the compression that the first bytes tell.
fn plain(bytes: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
    let mut bytes = BufReader::with_capacity(PIECE, bytes);
    let start = bytes.fill_buf().map_err(unreadable)?;
    Ok(match start {
        [0x1f, 0x8b, ..] => Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(bytes))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(unreadable)?;
            // 8 MiB windows, as RFC 8878 advises every decoder to take; more would be memory that the archive chooses.
            decoder.window_log_max(23).map_err(unreadable)?;
            Box::new(BufReader::new(decoder))
        }
        _ => Box::new(bytes),
    })
}

pub(super) fn read(bytes: Box<dyn Read + Send>, limits: &Limits, out: &Out) -> Result<()> {
    let mut bytes = plain(bytes)?;
    let mut extended = Extended::default();
    let mut seen = false;
    while let Some(block) = next_block(&mut bytes)? {
        seen = true;
        let kind = block[156];
        let size = number(&block[124..136])
            .and_then(|size| u64::try_from(size).ok())
            .ok_or_else(|| bad("an entry has a length that isn't one"))?;
        if matches!(kind, b'x' | b'g' | b'L' | b'K') {
            extended.bytes = extended.bytes.saturating_add(size);
            if extended.bytes > EXTENDED_MAX {
                return Err(bad("an entry's extended headers are longer than is allowed"));
            }
            let mut data = vec![0; usize::try_from(size).map_err(|_| bad("an extended header is too long"))?];
            bytes.read_exact(&mut data).map_err(cut_off)?;
            skip_padding(&mut bytes, size)?;
            match kind {
                b'x' => pax(&data, &mut extended)?,
                b'L' => extended.path = Some(until_zero(&data).to_vec()),
                b'K' => extended.target = Some(until_zero(&data).to_vec()),
                // Says something of the whole archive, such as the commit that it was made of.
                _ => {}
            }
            continue;
        }
        entry(&mut bytes, &block, size, std::mem::take(&mut extended), limits, out)?;
    }
    if !seen {
        return Err(Error::usage("the archive has no entries, or is none")
            .hint("give a folder, or a tar archive, plain or compressed by gzip or zstd"));
    }
    if extended.bytes > 0 { Err(bad("the archive ends before the entry of its last extended header")) } else { Ok(()) }
}

/// Returns the next header; none at the end, which is a block of zeros or the end of the bytes.
fn next_block(bytes: &mut dyn Read) -> Result<Option<[u8; BLOCK]>> {
    let mut block = [0; BLOCK];
    let mut filled = 0;
    while filled < BLOCK {
        match bytes.read(&mut block[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(cut_off(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    // The checksum is of the header with blanks in its own place.
    let sum: i64 = block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { i64::from(*byte) }).sum();
    if number(&block[148..156]) == Some(sum) {
        Ok(Some(block))
    } else {
        Err(bad("a header's checksum is wrong: it is no tar archive, or damaged"))
    }
}

fn entry(bytes: &mut dyn Read, block: &[u8; BLOCK], size: u64, extended: Extended, limits: &Limits, out: &Out) -> Result<()> {
    let path = extended.path.unwrap_or_else(|| {
        let name = until_zero(&block[..100]);
        match until_zero(&block[345..500]) {
            // GNU tar keeps other things there, and says so in its magic.
            prefix if !prefix.is_empty() && block[257..263] == *b"ustar\0" => [prefix, b"/", name].concat(),
            _ => name.to_vec(),
        }
    });
    let malformed = |why: &str| bad(&format!("{} {why}", display(&path)));
    let mode = number(&block[100..108]).ok_or_else(|| malformed("has a mode that isn't one"))?;
    let mode = u16::try_from(mode & 0o777).unwrap_or(0);
    let mtime = match extended.mtime {
        Some(mtime) => mtime,
        None => number(&block[136..148]).ok_or_else(|| malformed("has a time that isn't one"))?.saturating_mul(1_000_000_000),
    };
    let size = extended.size.unwrap_or(size);
    let what = match block[156] {
        // Before POSIX a directory was a file whose name ends with a slash.
        0 | b'0' | b'7' if path.ends_with(b"/") && size == 0 => return out.put(Step::Directory { path, mode, mtime }),
        0 | b'0' | b'7' => return file(bytes, path, (mode, mtime, size), limits, out),
        b'5' | b'1' | b'2' if size > 0 => return Err(malformed("has bytes, and is no file")),
        b'5' => return out.put(Step::Directory { path, mode, mtime }),
        kind @ (b'1' | b'2') => {
            let target = extended.target.unwrap_or_else(|| until_zero(&block[157..257]).to_vec());
            return out.put(if kind == b'2' { Step::Symlink { path, mtime, target } } else { Step::Link { path, to: target } });
        }
        b'3' | b'4' => "a device",
        b'6' => "a pipe",
        b'S' => "a sparse file of GNU tar",
        _ => "of a kind that isn't taken",
    };
    Err(Error::denied(format!("{} is {what}", display(&path))).code("special_file"))
}

fn file(bytes: &mut dyn Read, path: Vec<u8>, (mode, mtime, size): (u16, i64, u64), limits: &Limits, out: &Out) -> Result<()> {
    if size > limits.file {
        return Err(Error::limit(format!("at {}: bytes in one file: {size} is over the limit of {}", display(&path), limits.file))
            .code("import_too_large"));
    }
    out.put(Step::File { path, mode, mtime, size })?;
    let mut left = size;
    while left > 0 {
        let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
        bytes.read_exact(&mut piece).map_err(cut_off)?;
        left -= piece.len() as u64;
        out.put(Step::Data(piece.into()))?;
    }
    out.put(Step::End)?;
    skip_padding(bytes, size)
}

/// Reads the rest of a last block.
fn skip_padding(bytes: &mut dyn Read, size: u64) -> Result<()> {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    let mut rest = [0; BLOCK];
    if over > 0 { bytes.read_exact(&mut rest[over..]).map_err(cut_off) } else { Ok(()) }
}

/// Reads the records of a pax header: length in decimal, blank, key, `=`, value, line feed.
fn pax(mut data: &[u8], extended: &mut Extended) -> Result<()> {
    while !data.is_empty() {
        let malformed = || bad("a record of an extended header isn't one");
        let blank = data.iter().position(|byte| *byte == b' ').filter(|blank| *blank <= 20).ok_or_else(malformed)?;
        let length = decimal(&data[..blank]).and_then(|length| usize::try_from(length).ok()).ok_or_else(malformed)?;
        let record = data.get(blank + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => extended.path = Some(value.to_vec()),
            b"linkpath" => extended.target = Some(value.to_vec()),
            b"size" => extended.size = Some(decimal(value).ok_or_else(malformed)?),
            b"mtime" => extended.mtime = Some(nanoseconds(value).ok_or_else(malformed)?),
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(Error::denied("the archive has a sparse file in GNU tar's own form")
                    .code("special_file")
                    .hint("make it without --sparse"));
            }
            _ => {}
        }
        data = data.get(length..).ok_or_else(malformed)?;
    }
    Ok(())
}

fn until_zero(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// Reads a number of a header: octal digits, or with the highest bit set its bytes themselves (GNU tar), the highest first.
fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // Two's complement in as many bytes as the field has.
        let negative = first & 0x40 != 0;
        let start = i128::from(first & 0x3f) - if negative { 0x40 } else { 0 };
        let value = rest.iter().try_fold(start, |value, byte| value.checked_mul(256)?.checked_add(i128::from(*byte)))?;
        return i64::try_from(value).ok();
    }
    let text = std::str::from_utf8(until_zero(field)).ok()?.trim_matches(' ');
    match text {
        "" => Some(0),
        text if text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) => i64::from_str_radix(text, 8).ok(),
        _ => None,
    }
}

/// Reads decimal seconds since 1970 as nanoseconds.
fn nanoseconds(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mut parts = digits.splitn(2, |byte| *byte == b'.');
    let (seconds, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    let mut nanos = i128::from(decimal(seconds)?).checked_mul(1_000_000_000)?;
    let mut unit = 100_000_000;
    for digit in fraction {
        if !digit.is_ascii_digit() {
            return None;
        }
        nanos += i128::from(digit - b'0') * unit;
        unit /= 10;
    }
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

fn bad(why: &str) -> Error {
    Error::denied(why.to_owned()).code("hostile_archive")
}

fn cut_off(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => bad("the archive is cut off: it ends within an entry"),
        _ => unreadable(error),
    }
}

fn unreadable(error: io::Error) -> Error {
    bad("the archive can't be read").source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_bytes() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0"), Some(0));
        assert_eq!(number(b"9\0"), None);
        assert_eq!(number(b"-1\0"), None);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]), Some(8 << 30));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(&[0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn times_keep_nine_digits_and_refuse_what_is_none() {
        for (text, nanos) in
            [("0", 0), ("1.5", 1_500_000_000), ("-1.5", -1_500_000_000), ("1.0000000019", 1_000_000_001), ("7.", 7_000_000_000)]
        {
            assert_eq!(nanoseconds(text.as_bytes()), Some(nanos), "{text}");
        }
        for text in ["", "-", ".5", "1.x", "1e9", "99999999999999999999", "9999999999999"] {
            assert_eq!(nanoseconds(text.as_bytes()), None, "{text}");
        }
    }
}
