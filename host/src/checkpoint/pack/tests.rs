#![expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]

use super::*;
use crate::error::ErrorKind;

const SALT: Salt = [0x5a; SALT_LEN];

fn sample() -> (PackId, Bytes, Vec<FrameEntry>) {
    let mut builder = PackBuilder::new();
    let text = b"the quick brown fox, the quick brown fox, the quick brown fox".repeat(20);
    let half = u32::try_from(text.len() / 2).unwrap();
    builder.push(FrameKind::Content, &frame::encode(&text).unwrap(), vec![half, text.len() as u32 - half]).unwrap();
    builder.push(FrameKind::Content, &frame::encode(b"raw").unwrap(), vec![3]).unwrap();
    builder.push(FrameKind::Page, &frame::encode(b"a page").unwrap(), vec![6]).unwrap();
    builder.finish(&SALT)
}

/// Puts a pack together from a footer given as bytes; its name is right.
fn with_footer(footer: &[u8]) -> (PackId, Bytes) {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&frame::encode(b"raw").unwrap());
    bytes.extend_from_slice(footer);
    bytes.extend_from_slice(&(footer.len() as u32).to_le_bytes());
    bytes.extend_from_slice(END_MAGIC);
    (PackId::of(&bytes), bytes.into())
}

#[test]
fn a_pack_lists_its_frames() {
    let (id, bytes, frames) = sample();
    assert_eq!(check(id, &bytes).unwrap(), frames);
    assert_eq!(frames[0].offset as usize, MAGIC.len());
    assert_eq!(frames[1].offset, frames[0].offset + frames[0].stored);
    assert_eq!(frames[2].kind, FrameKind::Page);
    let (empty, bytes, _) = PackBuilder::new().finish(&SALT);
    assert_eq!(check(empty, &bytes).unwrap(), vec![]);
}

#[test]
fn the_byte_form_is_pinned() {
    let mut builder = PackBuilder::new();
    builder.push(FrameKind::Content, &frame::encode(b"hello").unwrap(), vec![2, 3]).unwrap();
    let (id, bytes, _) = builder.finish(&SALT);
    assert_eq!(
        hex::encode(&bytes),
        concat!(
            "4c465041434b310a",                   // LFPACK1\n
            "0005000000",                         // raw, 5 bytes
            "68656c6c6f",                         // hello
            "8301818500080a05820203",             // [1, [[0, 8, 10, 5, [2, 3]]],
            "505a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a", // salt]
            "1c000000",                           // 28 bytes
            "4c4650454e44310a"                    // LFPEND1\n
        )
    );
    assert_eq!(id.to_string(), hex::encode(crate::id::sha256(&bytes).as_bytes()));
}

#[test]
fn any_flipped_bit_is_found_and_names_the_pack() {
    let (id, bytes, _) = sample();
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1 << bit;
            let bad = Bytes::from(bad);
            let error = check(id, &bad).unwrap_err();
            assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "pack_damaged"));
            assert!(error.message().contains(&id.to_string()));
            // The reader of the footer alone never panics, whatever it makes of the bytes; nor does a check under the right name.
            let _ = read_footer(&bad);
            let _ = check(PackId::of(&bad), &bad);
        }
    }
}

#[test]
fn any_cut_off_pack_is_refused_also_under_its_own_name() {
    let (_, bytes, _) = sample();
    for len in 0..bytes.len() {
        let cut = bytes.slice(..len);
        assert_eq!(check(PackId::of(&cut), &cut).unwrap_err().stable_code(), "pack_damaged", "{len}");
    }
}

#[test]
fn hostile_footers_are_refused_under_a_right_name() {
    let hex = |text: &str| hex::decode(text.replace(' ', "")).unwrap();
    let salt = format!("50 {}", "5a".repeat(SALT_LEN));
    let (id, bytes) = with_footer(&hex(&format!("83 01 81 85 00 08 08 03 81 03 {salt}")));
    assert!(check(id, &bytes).is_ok(), "the pattern of the bad ones is good");
    for (what, footer) in [
        ("nothing", ""),
        ("not an array", "01"),
        ("endless array", "9f 01 81 85 00 08 08 03 81 03 ff"),
        ("array of four", "84 01 81 85 00 08 08 03 81 03 00"),
        ("version 0", "83 00 81 85 00 08 08 03 81 03"),
        ("2^63 frames", "83 01 9b 80 00 00 00 00 00 00 00"),
        ("more frames than bytes", "83 01 82 85 00 08 08 03 81 03"),
        ("2^32 objects", "83 01 81 85 00 08 08 03 9b 00 00 00 01 00 00 00 00"),
        ("2^64-1 objects", "83 01 81 85 00 08 08 03 9b ff ff ff ff ff ff ff ff"),
        ("unknown kind", "83 01 81 85 02 08 08 03 81 03"),
        ("offset before the frames", "83 01 81 85 00 07 08 03 81 03"),
        ("offset of 4 GiB", "83 01 81 85 00 1a ff ff ff ff 08 03 81 03"),
        ("stored too long", "83 01 81 85 00 08 09 03 81 03"),
        ("stored of 4 GiB", "83 01 81 85 00 08 1a ff ff ff ff 03 81 03"),
        ("plain isn't the sum", "83 01 81 85 00 08 08 04 81 03"),
        ("plain isn't the frame's", "83 01 81 85 00 08 08 04 81 04"),
        ("no objects", "83 01 81 85 00 08 08 00 80"),
        ("object of nothing", "83 01 81 85 00 08 08 03 82 00 03"),
        ("sum wraps", "83 01 81 85 00 08 08 03 82 1a ff ff ff ff 04"),
        ("page of two objects", "83 01 81 85 01 08 08 03 82 01 02"),
        ("long form of a number", "83 01 81 85 00 18 08 08 03 81 03"),
        ("bytes behind", "83 01 81 85 00 08 08 03 81 03 00"),
        ("a tag", "c1 83 01 81 85 00 08 08 03 81 03"),
        ("a negative number", "83 01 81 85 00 28 08 03 81 03"),
        ("no frame listed", "83 01 80"),
        ("a salt too few", "82 01 81 85 00 08 08 03 81 03"),
        ("a salt that is text", "83 01 81 85 00 08 08 03 81 03 60"),
        ("a short salt", "83 01 81 85 00 08 08 03 81 03 41 00"),
        ("the frame twice", "83 01 82 85 00 08 08 03 81 03 85 00 08 08 03 81 03"),
    ] {
        let (id, bytes) = with_footer(&hex(&format!("{footer} {salt}")));
        let error = check(id, &bytes).unwrap_err();
        assert_eq!(error.stable_code(), "pack_damaged", "{what}");
        assert!(error.message().contains(&id.to_string()), "{what}");
    }
}

#[test]
fn content_behind_pages_is_refused() {
    let mut builder = PackBuilder::new();
    builder.push(FrameKind::Page, &frame::encode(b"page").unwrap(), vec![4]).unwrap();
    builder.push(FrameKind::Content, &frame::encode(b"content").unwrap(), vec![7]).unwrap();
    let (id, bytes, _) = builder.finish(&SALT);
    assert_eq!(check(id, &bytes).unwrap_err().stable_code(), "pack_damaged");
}

#[test]
fn a_footer_length_beyond_the_pack_is_refused() {
    let (_, bytes, _) = sample();
    for length in [u32::MAX, bytes.len() as u32, bytes.len() as u32 - 19, FOOTER_MAX as u32 + 1, 0] {
        let mut bad = bytes.to_vec();
        let at = bad.len() - TRAILER;
        bad[at..at + 4].copy_from_slice(&length.to_le_bytes());
        let bad = Bytes::from(bad);
        assert_eq!(check(PackId::of(&bad), &bad).unwrap_err().stable_code(), "pack_damaged", "{length}");
    }
}

#[test]
fn the_builder_keeps_to_the_limits() {
    let mut builder = PackBuilder::new();
    let mega = vec![0xA5; FRAME_PLAIN_MAX];
    let mut stored = vec![0];
    stored.extend_from_slice(&(mega.len() as u32).to_le_bytes());
    stored.extend_from_slice(&mega);
    while builder.has_room(stored.len(), 1) {
        builder.push(FrameKind::Content, &stored, vec![mega.len() as u32]).unwrap();
    }
    assert!(builder.push(FrameKind::Content, &stored, vec![mega.len() as u32]).is_err());
    let (_, bytes, _) = builder.finish(&SALT);
    assert!(bytes.len() <= PACK_MAX && bytes.len() > PACK_MAX - 2 * FRAME_STORED_MAX);
}
