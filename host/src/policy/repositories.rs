//! Which repositories the policy allows: `[policy] repositories`.

use url::Url;

use crate::repository::url::RepositoryUrl;

/// Says whether one of the patterns covers a repository. A pattern is a repository's URL, or the beginning of one with `*` at its end.
/// Both sides are compared in their normal form, so that no spelling (`/acme/../other`, an upper-case host) passes for another.
#[must_use]
pub fn allows(patterns: &[String], url: &RepositoryUrl) -> bool {
    patterns.iter().any(|pattern| covers(pattern, url))
}

fn covers(pattern: &str, url: &RepositoryUrl) -> bool {
    match pattern.strip_suffix('*') {
        // A beginning always ends its host: `https://github.com*` isn't `https://github.com.example.org`.
        Some(start) => Url::parse(start).is_ok_and(|start| url.as_str().starts_with(start.as_str())),
        None => RepositoryUrl::parse(pattern).is_ok_and(|pattern| without_git(pattern.as_str()) == without_git(url.as_str())),
    }
}

fn without_git(url: &str) -> &str {
    url.strip_suffix(".git").unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, url: &str) -> bool {
        allows(&[pattern.to_owned()], &RepositoryUrl::parse(url).unwrap())
    }

    #[test]
    fn whole_urls_and_beginnings_cover_what_they_say() {
        for (pattern, url) in [
            ("https://github.com/acme/app", "https://github.com/acme/app"),
            ("https://github.com/acme/app", "https://github.com/acme/app.git"),
            ("https://github.com/acme/app.git/", "https://github.com/acme/app"),
            ("https://GitHub.com/acme/app", "https://github.com:443/acme/app/"),
            ("https://github.com/acme/*", "https://github.com/acme/app"),
            ("https://github.com/acme/web-*", "https://github.com/acme/web-shop"),
            ("https://github.com/*", "https://github.com/acme/app"),
            ("https://github.com*", "https://github.com/acme/app"),
            ("file:///srv/git/*", "file:///srv/git/app"),
        ] {
            assert!(check(pattern, url), "{pattern} covers {url}");
        }
    }

    #[test]
    fn no_spelling_gets_past_a_pattern() {
        for (pattern, url) in [
            ("https://github.com/acme/*", "https://github.com/acme/../evil/app"),
            ("https://github.com/acme/*", "https://github.com/acme/./../evil/app"),
            ("https://github.com/acme/*", "https://github.com/acmeevil/app"),
            ("https://github.com/acme/../evil/*", "https://github.com/acme/app"),
            ("https://github.com*", "https://github.com.evil.org/acme/app"),
            ("https://github.com/acme/app", "https://github.com/acme/app2"),
            ("https://github.com/acme/app", "https://github.com:8443/acme/app"),
            ("https://github.com/acme/*", "http://127.0.0.1/acme/app"),
            ("*", "https://github.com/acme/app"),
            ("", "https://github.com/acme/app"),
            ("file:///srv/git/*", "file:///srv/git/../secret"),
        ] {
            assert!(!check(pattern, url), "{pattern} doesn't cover {url}");
        }
        assert!(!allows(&[], &RepositoryUrl::parse("https://github.com/acme/app").unwrap()), "nothing listed, nothing allowed");
    }
}
