//! The rules: reading and checking them.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use landfall_guest::Failure;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

/// Largest compiled pattern, in bytes.
const PATTERN_MAX: usize = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Spanned<Entry>>,
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
    /// Reads rules in TOML. A mistake is an invalid request that says in one line where it is and what.
    pub(crate) fn parse(text: &str, source: Option<&str>) -> Result<Self, Failure> {
        let source_name = source.unwrap_or("the rules");
        let wrong = |at: usize, why: &str| {
            let line = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
            invalid(format!("{source_name}, line {line}: {}", one_line(why)))
        };
        let file: File = toml::from_str(text).map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        if file.rule.is_empty() {
            return Err(invalid(format!("{source_name}: no [[rule]] in it")));
        }
        let mut rules = Vec::with_capacity(file.rule.len());
        for (number, entry) in (1..).zip(file.rule) {
            let at = entry.span().start;
            rules.push(Rule::new(number, entry.into_inner()).map_err(|why| wrong(at, &why))?);
        }
        Ok(Self { rules, source: source.map(str::to_owned) })
    }
}

impl Rule {
    fn new(number: usize, entry: Entry) -> Result<Self, String> {
        let name = entry.name.unwrap_or_else(|| format!("rule {number}"));
        let wrong = |why: String| format!("{name}: {why}");
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
    // The message's last line says what is wrong; those before it draw the pattern.
    builder.build().map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        format!("the pattern {pattern:?} can't be used: {}", last.strip_prefix("error: ").unwrap_or(last))
    })
}

/// Joins the lines of a message.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
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
        assert!(
            refused("[[rule]]\nname = 'mine'\nregex = '('\nreplace = ''\n")
                .contains("mine: the pattern \"(\" can't be used: unclosed group")
        );
        assert!(refused("[[rule]]\nsearch = 'a'\nreplace = ''\nglobs = []\n").contains("line 4: unknown field `globs`"));
        assert!(refused("\n[[rule]]\nsearch = 'a'\nreplace = ''\nfiles = ['[']\n").contains("line 2: rule 1: "));
        let broken = Rules::parse("[[rule]]\nsearch = 'a'\nreplace = \n", Some("codemod.toml")).unwrap_err().to_string();
        assert!(broken.contains("codemod.toml, line 3: ") && broken.lines().count() == 1, "{broken}");
    }
}
