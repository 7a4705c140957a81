use bytes::Bytes;

use super::*;

const TOKEN: &str = "ghp_0123456789abcdefABCDEF+/=x";

fn mask() -> Mask {
    Mask::new([&Secret::new("T", TOKEN).unwrap()])
}

/// What a text that holds the token can look like without anybody having meant to hide it.
fn encodings() -> Vec<String> {
    let every: String = TOKEN.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let some: String =
        TOKEN.bytes().enumerate().map(|(at, byte)| if at % 3 == 0 { format!("%{byte:02X}") } else { (byte as char).to_string() }).collect();
    vec![
        TOKEN.to_owned(),
        TOKEN.to_ascii_uppercase(),
        hex::encode(TOKEN),
        hex::encode_upper(TOKEN),
        "eC1hY2Nlc3MtdG9rZW46Z2hwXzAxMjM0NTY3ODlhYmNkZWZBQkNERUYrLz14".to_owned(), // x-access-token:TOKEN in base64
        TOKEN.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D"),
        TOKEN.replace('/', "\\/"),
        every,
        some,
    ]
}

#[test]
fn every_form_is_masked() {
    let mask = mask();
    for form in encodings().into_iter().take(8) {
        let text = format!("before {form} after");
        let masked = mask.apply(&text);
        assert!(masked.contains("[masked]"), "{form}");
        assert!(mask.found_in(text.as_bytes()));
        assert!(!masked.contains("0123456789abcdef"), "{masked}");
    }
    assert_eq!(mask.apply("nothing here"), "nothing here");
    assert_eq!(Mask::default().apply("nothing here"), "nothing here");
    assert_eq!(format!("{:?}", Secret::new("T", TOKEN).unwrap()), "Secret(..)");
}

#[test]
fn short_and_malformed_secrets_are_refused_without_showing_them() {
    let error = Secret::new("MY_KEY", "hunter2\n").unwrap_err();
    assert_eq!(error.stable_code(), "secret_too_short");
    assert!(!format!("{error:?}").contains("hunter2"));
    assert!(Secret::new("MY_KEY", "0123456789abcdef\u{1}0").is_err());
}

/// Passes chunks through a scanner; returns what a reader sees, and whether the secret was found.
fn scan<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> (Vec<u8>, bool) {
    let (mut scanner, mut seen) = (mask().scanner(), Vec::new());
    for chunk in chunks {
        match scanner.push(Bytes::copy_from_slice(chunk)) {
            Ok(passed) => seen.extend_from_slice(&passed),
            Err(Leak) => return (seen, true),
        }
    }
    seen.extend_from_slice(&scanner.finish());
    (seen, false)
}

#[test]
fn no_form_gets_through_a_stream_however_it_is_cut() {
    for form in encodings() {
        let text = format!("{{\"authorization\": \"{form}\"}}");
        for cut in 1..text.len() {
            let (first, second) = text.as_bytes().split_at(cut);
            let (seen, found) = scan([first, second]);
            assert!(found, "{form} cut at {cut}");
            // Not even a recognisable part of it was passed on.
            let seen = String::from_utf8_lossy(&seen);
            assert!(seen.len() <= "{\"authorization\": \"eC1hY2Nlc3MtdG9rZW46".len(), "{form} cut at {cut}: {seen}");
        }
        assert!(scan(text.as_bytes().chunks(1)).1, "{form} byte by byte");
        assert!(scan(text.as_bytes().chunks(7)).1, "{form} in sevens");
    }
}

#[test]
fn what_only_begins_like_a_secret_passes_whole() {
    for text in
        ["ghp_0123", "a ghp_ and % and %4 and ghp_%30123456789 end", "%67%68%70", "%", "ghp_0123456789abcdefABCDEF+/=", "data: 1\n\n"]
    {
        for size in 1..text.len() {
            let (seen, found) = scan(text.as_bytes().chunks(size));
            assert!(!found && seen == text.as_bytes(), "{text} in {size}s: {:?}", String::from_utf8_lossy(&seen));
        }
    }
    // An event of a stream isn't held back until the next one comes.
    let mut scanner = mask().scanner();
    assert_eq!(scanner.push(Bytes::from_static(b"data: hello\n\n")).unwrap(), "data: hello\n\n");
}
