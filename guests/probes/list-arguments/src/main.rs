//! Lists what is under the paths of its arguments: one line per entry, `d` or `f SIZE` or `l -> TARGET`, then the path. Sorted.
//! Exits with 1 when a path can't be read, after listing the others.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args().skip(1) {
        if let Err(error) = list(Path::new(&path)) {
            eprintln!("{path}: {error}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn list(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        println!("l -> {} {}", fs::read_link(path)?.display(), path.display());
    } else if metadata.is_dir() {
        println!("d {}", path.display());
        let mut entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        for entry in entries {
            list(&entry)?;
        }
    } else {
        println!("f {} {}", metadata.len(), path.display());
    }
    Ok(())
}
