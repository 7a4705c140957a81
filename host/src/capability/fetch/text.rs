//! From a body's bytes to text: the charset that is named, else UTF-8.

use encoding_rs::{Encoding, UTF_8};

/// Bytes at a page's start in which its own naming of a charset counts (the HTML Standard, 13.2.3.2).
const PRESCAN: usize = 1024;

/// Decodes a body. What its charset doesn't have is replaced.
pub(super) fn decode(content_type: &str, body: &[u8]) -> String {
    let named = parameter(content_type, "charset").and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = named.or_else(|| in_page(content_type, body)).unwrap_or(UTF_8);
    // A byte order mark wins over all that is said.
    encoding.decode(body).0.into_owned()
}

/// Whether a body is a page of HTML.
pub(super) fn is_html(content_type: &str, text: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "text/html" | "application/xhtml+xml" => true,
        "" => {
            let start = text.trim_start().get(..15).unwrap_or_default().to_ascii_lowercase();
            start.starts_with("<!doctype html") || start.starts_with("<html")
        }
        _ => false,
    }
}

fn parameter<'t>(content_type: &'t str, wanted: &str) -> Option<&'t str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches('"'))
    })
}

/// Reads `<meta charset=...>` and its older form at the start of a page.
fn in_page(content_type: &str, body: &[u8]) -> Option<&'static Encoding> {
    let start = String::from_utf8_lossy(&body[..body.len().min(PRESCAN)]).to_ascii_lowercase();
    if !is_html(content_type, &start) {
        return None;
    }
    let meta = &start[start.find("<meta")?..];
    let value = meta[meta.find("charset")? + "charset".len()..].trim_start().strip_prefix('=')?.trim_start();
    let label: String =
        value.trim_start_matches(['"', '\'']).chars().take_while(|c| c.is_ascii_alphanumeric() || "-_:".contains(*c)).collect();
    Encoding::for_label(label.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charset_comes_from_the_header_the_mark_or_the_page() {
        assert_eq!(decode("text/plain; charset=ISO-8859-1", b"gr\xfc\xdf"), "gr\u{fc}\u{df}");
        assert_eq!(decode("text/plain; charset=\"utf-8\"", "grüß".as_bytes()), "grüß");
        assert_eq!(decode("text/plain", b"\xff\xfeh\x00i\x00"), "hi");
        assert_eq!(
            decode("text/html", b"<html><head><meta charset=\"windows-1252\"></head>\x80"),
            "<html><head><meta charset=\"windows-1252\"></head>€"
        );
        assert_eq!(
            decode("text/html", b"<html><meta http-equiv=Content-Type content='text/html; charset=koi8-r'>\xc1"),
            "<html><meta http-equiv=Content-Type content='text/html; charset=koi8-r'>а"
        );
        assert_eq!(decode("text/plain", b"<meta charset=koi8-r>\xc1"), "<meta charset=koi8-r>\u{fffd}");
    }

    #[test]
    fn html_is_told_from_the_type_or_the_start() {
        assert!(is_html("text/HTML; charset=x", "") && is_html("", " <!DOCTYPE html><p>") && !is_html("application/json", "<html>"));
    }
}
