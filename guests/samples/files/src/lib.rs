//! The files of a tree that people wrote: what `.gitignore` files don't name, without `.git` and without links.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// A regular file of a tree.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path relative to the tree's root, with `/`.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// What is known of it without reading it.
    pub metadata: Metadata,
}

/// Calls a function with each regular file under a directory, directory by directory, in the order of the names' bytes.
///
/// `.git` is passed over, and so are directories with one of the names in `skip` and whatever a `.gitignore` names, at any depth.
/// Links are not followed. Names that aren't UTF-8 are passed over: WASI can't open them.
///
/// # Errors
/// The function's own, and those of reading directories, which name the directory.
pub fn walk<E: From<io::Error>>(root: &Path, skip: &[&str], mut visit: impl FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
    let mut ignored = Vec::new();
    directory(root, "", skip, &mut ignored, &mut visit)
}

fn directory<E: From<io::Error>>(
    path: &Path,
    name: &str,
    skip: &[&str],
    ignored: &mut Vec<Gitignore>,
    visit: &mut impl FnMut(Entry) -> Result<(), E>,
) -> Result<(), E> {
    let rules = path.join(".gitignore");
    let pushed = fs::symlink_metadata(&rules).is_ok_and(|metadata| metadata.is_file());
    if pushed {
        let mut builder = GitignoreBuilder::new(path);
        // As in git, a line that can't be read is no rule.
        let _ = builder.add(&rules);
        ignored.push(builder.build().unwrap_or_else(|_| Gitignore::empty()));
    }
    let failed = |error: io::Error| E::from(io::Error::new(error.kind(), format!("can't list {}: {error}", path.display())));
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(failed)?;
    let mut names: Vec<String> = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for entry in names {
        let (path, name) = (path.join(&entry), if name.is_empty() { entry.clone() } else { format!("{name}/{entry}") });
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if entry == ".git" || is_ignored(ignored, &path, metadata.is_dir()) {
            continue;
        }
        if metadata.is_file() {
            visit(Entry { name, path, metadata })?;
        } else if metadata.is_dir() && !skip.contains(&entry.as_str()) {
            directory(&path, &name, skip, ignored, visit)?;
        }
    }
    if pushed {
        ignored.pop();
    }
    Ok(())
}

/// Asks the nearest `.gitignore` first: it overrides those above it.
fn is_ignored(ignored: &[Gitignore], path: &Path, is_directory: bool) -> bool {
    for rules in ignored.iter().rev() {
        match rules.matched(path, is_directory) {
            Match::None => {}
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(root: &Path, skip: &[&str]) -> Vec<String> {
        let mut names = Vec::new();
        walk(root, skip, |entry| -> io::Result<()> {
            names.push(entry.name);
            Ok(())
        })
        .unwrap();
        names
    }

    #[test]
    fn nested_rules_override_those_above() {
        let directory = tempfile::tempdir().unwrap();
        for (path, content) in [
            (".gitignore", "*.log\n/build/\n"),
            ("a.log", ""),
            ("a.rs", ""),
            ("build/x.rs", ""),
            ("keep/.gitignore", "!b.log\n"),
            ("keep/b.log", ""),
            ("keep/build/y.rs", ""),
            ("keep/c.log", ""),
            (".git/HEAD", ""),
            ("skipped/z", ""),
        ] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        assert_eq!(names(directory.path(), &["skipped"]), [".gitignore", "a.rs", "keep/.gitignore", "keep/b.log", "keep/build/y.rs"]);
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_named() {
        let error = walk(Path::new("/nowhere/at/all"), &[], |_| -> io::Result<()> { Ok(()) }).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
