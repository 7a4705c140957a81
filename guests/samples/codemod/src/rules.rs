//! The rules: reading and checking them.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use landfall_guest::Failure;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

/// Largest compiled pattern, in bytes.
const PATTERN_MAX: usize = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: Option<String>,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    except: Vec<String>,
    search: Option<String>,
    regex: Option<String>,
    replace: String,
    #[serde(default)]
    whole_word: bool,
    #[serde(default)]
    ignore_case: bool,
}

/// The rules of a run, in order.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The rules; at least one.
    pub(crate) rules: Vec<Rule>,
    /// The file they came from, relative to the workspace: no rule applies to it. None when they came with the request.
    pub(crate) source: Option<String>,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// What the answer calls it.
    pub(crate) name: String,
    files: Option<GlobSet>,
    except: GlobSet,
    pattern: Regex,
    replacement: Replacement,
}

#[derive(Debug)]
enum Replacement {
    Literal(String),
    Template(String),
}

impl Rules {
    /// Reads rules in TOML. A mistake is an invalid request that names the rule or the line.
    pub(crate) fn parse(text: &str, source: Option<&str>) -> Result<Self, Failure> {
        let file: File = toml::from_str(text).map_err(|error| invalid(format!("the rules don't parse: {error}")))?;
        if file.rule.is_empty() {
            return Err(invalid("the rules have no [[rule]]"));
        }
        let rules = (1..).zip(file.rule).map(|(number, entry)| Rule::new(number, entry)).collect::<Result<_, _>>()?;
        Ok(Self { rules, source: source.map(str::to_owned) })
    }
}

impl Rule {
    fn new(number: usize, entry: Entry) -> Result<Self, Failure> {
        let name = entry.name.unwrap_or_else(|| format!("rule {number}"));
        let wrong = |why: String| invalid(format!("{name}: {why}"));
        let (pattern, replacement) = match (entry.search, entry.regex) {
            (Some(text), None) if !text.is_empty() => (regex::escape(&text), Replacement::Literal(entry.replace)),
            (None, Some(pattern)) => (pattern, Replacement::Template(entry.replace)),
            (Some(_), None) => return Err(wrong("`search` is empty".to_owned())),
            _ => return Err(wrong("give either `search` or `regex`".to_owned())),
        };
        // The pattern is checked before it is wrapped, so that an error shows what was written.
        build(&pattern, entry.ignore_case).map_err(&wrong)?;
        let pattern = if entry.whole_word { format!(r"\b{{start-half}}(?:{pattern})\b{{end-half}}") } else { pattern };
        let pattern = build(&pattern, entry.ignore_case).map_err(&wrong)?;
        if pattern.is_match("") {
            return Err(wrong("the pattern matches nothing at all, so it would match everywhere".to_owned()));
        }
        let files = if entry.files.is_empty() { None } else { Some(globs(&entry.files).map_err(&wrong)?) };
        let except = globs(&entry.except).map_err(&wrong)?;
        Ok(Self { name, files, except, pattern, replacement })
    }

    /// Returns whether the rule is for this file, given by its path in the workspace.
    pub(crate) fn covers(&self, path: &str) -> bool {
        self.files.as_ref().is_none_or(|files| files.is_match(path)) && !self.except.is_match(path)
    }

    /// Returns a text after the rule, and how often it applied; none when it didn't.
    pub(crate) fn apply(&self, text: &str) -> Option<(String, usize)> {
        let mut out = String::new();
        let (mut end, mut count) = (0, 0);
        for captures in self.pattern.captures_iter(text) {
            let found = captures.get_match();
            out.push_str(&text[end..found.start()]);
            match &self.replacement {
                Replacement::Literal(replacement) => out.push_str(replacement),
                Replacement::Template(template) => captures.expand(template, &mut out),
            }
            end = found.end();
            count += 1;
        }
        if count == 0 {
            return None;
        }
        out.push_str(&text[end..]);
        Some((out, count))
    }
}

fn build(pattern: &str, ignore_case: bool) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    builder.multi_line(true).case_insensitive(ignore_case).size_limit(PATTERN_MAX);
    builder.build().map_err(|error| error.to_string())
}

fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        // As in `.gitignore`: `*` stays within one part of the path, `**` doesn't.
        set.add(GlobBuilder::new(pattern).literal_separator(true).build().map_err(|error| error.to_string())?);
    }
    set.build().map_err(|error| error.to_string())
}

fn invalid(why: impl Into<String>) -> Failure {
    Failure::InvalidRequest(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(rules: &str, path: &str, text: &str) -> Option<(String, usize)> {
        let rules = Rules::parse(rules, None).unwrap();
        let rule = &rules.rules[0];
        if rule.covers(path) { rule.apply(text) } else { None }
    }

    fn refused(rules: &str) -> String {
        Rules::parse(rules, None).unwrap_err().to_string()
    }

    #[test]
    fn a_text_is_taken_literally() {
        let rules = "[[rule]]\nsearch = 'a.b($1)'\nreplace = '$1'\n";
        assert_eq!(apply(rules, "x", "a.b($1) axb($1)"), Some(("$1 axb($1)".to_owned(), 1)));
    }

    #[test]
    fn a_pattern_has_groups_and_lines() {
        let rules = "[[rule]]\nregex = '^(?<key>\\w+): (.*)$'\nreplace = '${key}=$2'\n";
        assert_eq!(apply(rules, "x", "a: 1\nb: 2\n"), Some(("a=1\nb=2\n".to_owned(), 2)));
    }

    #[test]
    fn whole_words_only_where_asked() {
        let rules = "[[rule]]\nsearch = 'cat'\nreplace = 'dog'\nwhole-word = true\n";
        assert_eq!(apply(rules, "x", "cat concat cats cat."), Some(("dog concat cats dog.".to_owned(), 2)));
        let rules = "[[rule]]\nsearch = '$x'\nreplace = '$y'\nwhole-word = true\n";
        assert_eq!(apply(rules, "x", "f($x) $xs"), Some(("f($y) $xs".to_owned(), 1)));
    }

    #[test]
    fn globs_choose_the_files() {
        let rules = "[[rule]]\nfiles = ['src/*.rs', '**/*.md']\nexcept = ['docs/**']\nsearch = 'a'\nreplace = 'b'\n";
        for (path, covered) in [("src/a.rs", true), ("src/x/a.rs", false), ("README.md", true), ("x/y.md", true), ("docs/y.md", false)] {
            assert_eq!(apply(rules, path, "a").is_some(), covered, "{path}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        assert!(refused("").contains("no [[rule]]"));
        assert!(refused("[[rule]]\nreplace = ''\n").contains("either `search` or `regex`"));
        assert!(refused("[[rule]]\nsearch = ''\nreplace = ''\n").contains("empty"));
        assert!(refused("[[rule]]\nregex = 'x*'\nreplace = ''\n").contains("match everywhere"));
        assert!(refused("[[rule]]\nname = 'mine'\nregex = '('\nreplace = ''\n").starts_with("mine: "));
        assert!(refused("[[rule]]\nsearch = 'a'\nreplace = ''\nglobs = []\n").contains("globs"));
        assert!(refused("[[rule]]\nsearch = 'a'\nreplace = ''\nfiles = ['[']\n").starts_with("rule 1: "));
    }
}
