//! The main text of a page as Markdown, by `dom_smoothie`, a kept port of the reader view of browsers. Pages are hostile: they are
//! bounded before they are parsed, and parsed on a thread whose stack fits the deepest nesting that the bounds let through.

use std::sync::LazyLock;

use dom_smoothie::{Config, Readability, TextMode};
use tokio::sync::{Semaphore, oneshot};

/// Longest page that is looked at, in bytes.
const PAGE_MAX: usize = 2 << 20;
/// Most tags of a page, and most elements inside each other: the parser's work grows with the product.
const TAGS_MAX: usize = 20_000;
const DEPTH_MAX: usize = 256;
/// Stack of the parsing thread, in bytes. Only what is used of it takes memory.
const STACK: usize = 256 << 20;

/// Pages that are parsed at once.
static PLACES: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(2));

/// A page's main text.
pub(super) struct Article {
    pub(super) title: Option<String>,
    pub(super) markdown: String,
}

/// Returns the main text of a page; none when it has none, or is too large to be looked at.
pub(super) async fn extract(page: &str, url: &str) -> Option<Article> {
    if page.len() > PAGE_MAX || !is_bounded(page) {
        return None;
    }
    let place = PLACES.acquire().await.ok()?;
    let (page, url) = (page.to_owned(), url.to_owned());
    let (give, take) = oneshot::channel();
    let parser = std::thread::Builder::new().name("landfall-page".to_owned()).stack_size(STACK).spawn(move || {
        let _ = give.send(parse(page, &url));
    });
    if let Err(error) = parser {
        tracing::warn!(%error, "no thread to read a page with");
        return None;
    }
    // A parser that panics drops its end.
    let article = take.await.ok().flatten();
    drop(place);
    article
}

/// Elements without content, and elements that end with the next of their kind: they nest only inside others that are counted.
const UNCOUNTED: [&str; 33] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr", "p", "li", "dt", "dd",
    "option", "optgroup", "tr", "td", "th", "tbody", "thead", "tfoot", "colgroup", "rb", "rt", "rp", "rtc", "body", "html",
];

/// Whether a page has few enough tags, and nests them no deeper than allowed. The depth is never taken for less than a parser makes of
/// it: an end counts only for the element opened last.
fn is_bounded(page: &str) -> bool {
    let (mut open, mut tags, mut rest): (Vec<String>, usize, &str) = (Vec::new(), 0, page);
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let ends = rest.starts_with('/');
        let name: String =
            rest[usize::from(ends)..].chars().take_while(char::is_ascii_alphanumeric).take(16).collect::<String>().to_ascii_lowercase();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        if ends {
            open.pop_if(|last| *last == name);
            continue;
        }
        tags += 1;
        // A script's text has no tags, but for one inside a drawing.
        if matches!(name.as_str(), "script" | "style") && !open.iter().any(|outer| outer == "svg" || outer == "math") {
            let end = format!("</{name}");
            rest = rest
                .as_bytes()
                .windows(end.len())
                .position(|window| window.eq_ignore_ascii_case(end.as_bytes()))
                .map_or("", |at| &rest[at..]);
        } else if !UNCOUNTED.contains(&name.as_str()) {
            open.push(name);
        }
        if tags > TAGS_MAX || open.len() > DEPTH_MAX {
            return false;
        }
    }
    true
}

fn parse(page: String, url: &str) -> Option<Article> {
    let config = Config { text_mode: TextMode::Markdown, max_elements_to_parse: TAGS_MAX * 2, ..Config::default() };
    let article = Readability::new(page, Some(url), Some(config)).ok()?.parse().ok()?;
    let markdown = article.text_content.trim().to_owned();
    let title = Some(article.title.trim().to_owned()).filter(|title| !title.is_empty());
    (!markdown.is_empty()).then_some(Article { title, markdown })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_main_text_comes_without_what_is_around_it() {
        let text =
            "Rust is a language for everyone who builds reliable and efficient software, and this sentence is long enough. ".repeat(6);
        let page = format!(
            "<html><head><title>About Rust</title></head><body><nav><a href=/>Home</a></nav><article><h2>Why</h2><p>{text}</p>\
             <p>See <a href=\"/book\">the book</a>.</p></article><footer>imprint</footer><script>alert(1)</script></body></html>"
        );
        let article = extract(&page, "https://www.example.org/about").await.unwrap();
        assert_eq!(article.title.as_deref(), Some("About Rust"));
        assert!(
            article.markdown.contains("reliable and efficient") && article.markdown.contains("https://www.example.org/book"),
            "{}",
            article.markdown
        );
        assert!(!article.markdown.contains("alert") && !article.markdown.contains("imprint"), "{}", article.markdown);
    }

    #[tokio::test]
    async fn pages_made_to_break_the_parser_are_bounded() {
        assert!(!is_bounded(&"<p>".repeat(TAGS_MAX + 1)));
        assert!(extract(&"a".repeat(PAGE_MAX + 1), "https://a.example.com/").await.is_none());
        for piece in ["<div>", "<div><table><tr><td></div>", "<p><a href='x'>", "<svg><math>", "<svg><script><g>", "<ul><li></ol>"] {
            assert!(!is_bounded(&piece.repeat(300)), "{piece}");
        }
        let flat = "<div><p>one</p><li>two<li>three<script>'<div><div>'</script><!-- c --></div>";
        assert!(is_bounded(&flat.repeat(500)));
        let _ = extract(&"<b><p></b>".repeat(500), "https://a.example.com/").await;
        let _ = extract(&flat.repeat(500), "https://a.example.com/").await;
    }
}
