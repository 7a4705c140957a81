//! The other tools, as their users would call them.

use std::path::{Path, PathBuf};

use landfall_tests::seaweed::Seaweed;

use crate::measure::{self, Measured};
use crate::proxy::{self, Counts};
use crate::{Tool, data};

/// Those that are installed. Which ones are missing is said.
pub(crate) fn all(server: &Seaweed, folder: &Path, round: usize) -> Vec<Box<dyn Tool>> {
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    let has = |program: &str| {
        let found = std::process::Command::new(program).arg("--version").output().is_ok()
            || std::process::Command::new(program).arg("version").output().is_ok();
        if !found {
            eprintln!("{program} isn't installed, and is left out");
        }
        found
    };
    let place = |name: &str| {
        let at = folder.join(name);
        std::fs::create_dir(&at).unwrap();
        at
    };
    if has("restic") {
        let (port, counts) = proxy::start(server.port());
        let repository = format!("s3:http://127.0.0.1:{port}/{}/restic-{}-{round}", landfall_tests::seaweed::BUCKET, std::process::id());
        let cache = place("restic");
        let mut variables = credentials(server);
        variables.push(("RESTIC_REPOSITORY".into(), repository));
        variables.push(("RESTIC_PASSWORD".into(), "bench".into()));
        variables.push(("RESTIC_CACHE_DIR".into(), cache.join("cache").display().to_string()));
        measure::run("restic", &["init", "-q"], &cache, &variables, None);
        tools.push(Box::new(Restic { variables, counts, folder: cache }));
    }
    if has("borg") {
        let at = place("borg");
        let variables = vec![
            ("BORG_REPO".to_owned(), at.join("repository").display().to_string()),
            ("BORG_BASE_DIR".to_owned(), at.display().to_string()),
            ("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK".to_owned(), "yes".to_owned()),
        ];
        measure::run("borg", &["init", "--encryption=none"], &at, &variables, None);
        tools.push(Box::new(Borg { variables, folder: at, taken: 0 }));
    }
    if has("git") {
        let at = place("git");
        measure::run("git", &["init", "-q", "--bare", "repository"], &at, &[], None);
        tools.push(Box::new(Git { folder: at }));
    }
    let (port, counts) = proxy::start(server.port());
    tools.push(Box::new(Tar {
        folder: place("tar"),
        variables: credentials(server),
        endpoint: format!("http://127.0.0.1:{port}"),
        counts,
        round,
    }));
    let python = std::env::var("BENCH_AGNO_PYTHON").unwrap_or_default();
    if python.is_empty() {
        eprintln!("BENCH_AGNO_PYTHON names no Python with agno and boto3, so agno is left out");
    } else {
        let (port, counts) = proxy::start(server.port());
        tools.push(Box::new(Agno {
            python,
            folder: place("agno"),
            variables: credentials(server),
            endpoint: format!("http://127.0.0.1:{port}"),
            counts,
            round,
        }));
    }
    tools
}

fn credentials(server: &Seaweed) -> Vec<(String, String)> {
    let options = server.options();
    let get = |name: &str| options.get(name).cloned().unwrap_or_default();
    vec![
        ("AWS_ACCESS_KEY_ID".into(), get("aws_access_key_id")),
        ("AWS_SECRET_ACCESS_KEY".into(), get("aws_secret_access_key")),
        ("AWS_DEFAULT_REGION".into(), get("aws_region")),
    ]
}

struct Restic {
    variables: Vec<(String, String)>,
    counts: Counts,
    folder: PathBuf,
}

impl Tool for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn run(&mut self, operation: &str, files: &Path, to: &Path) -> Option<Measured> {
        let (files_text, to) = (files.display().to_string(), to.display().to_string());
        let one = files.join(data::changed(files)).display().to_string();
        let arguments: Vec<&str> = match operation {
            "full restore" => vec!["restore", "-q", "latest", "--no-cache", "--target", &to],
            "one file read, fresh" => vec!["dump", "-q", "--no-cache", "latest", &one],
            _ => vec!["backup", "-q", &files_text],
        };
        Some(measure::run("restic", &arguments, &self.folder, &self.variables, Some(&self.counts)).0)
    }
}

struct Borg {
    variables: Vec<(String, String)>,
    folder: PathBuf,
    taken: u32,
}

impl Tool for Borg {
    fn name(&self) -> &'static str {
        "borg"
    }

    fn run(&mut self, operation: &str, files: &Path, to: &Path) -> Option<Measured> {
        let files_text = files.display().to_string();
        let last = format!("::a{}", self.taken);
        if operation == "full restore" || operation == "one file read, fresh" {
            std::fs::create_dir_all(to).unwrap();
            let one = files.join(data::changed(files)).display().to_string();
            let mut arguments = vec!["extract", &last];
            if operation != "full restore" {
                arguments.push(one.trim_start_matches('/'));
            }
            return Some(measure::run("borg", &arguments, to, &self.variables, None).0);
        }
        self.taken += 1;
        let next = format!("::a{}", self.taken);
        Some(measure::run("borg", &["create", "--compression", "zstd,3", &next, &files_text], &self.folder, &self.variables, None).0)
    }
}

struct Git {
    folder: PathBuf,
}

impl Tool for Git {
    fn name(&self) -> &'static str {
        "git"
    }

    fn run(&mut self, operation: &str, files: &Path, to: &Path) -> Option<Measured> {
        let repository = self.folder.join("repository").display().to_string();
        let variables = vec![("GIT_DIR".to_owned(), repository), ("GIT_WORK_TREE".to_owned(), files.display().to_string())];
        let script = match operation {
            "full restore" => format!("mkdir -p '{0}' && git --work-tree='{0}' checkout-index -a -f && sync -f '{0}'", to.display()),
            "one file read, fresh" => return None,
            _ => "git -c core.fsync=all add -A && git write-tree > tree".to_owned(),
        };
        Some(measure::run("sh", &["-c", &script], &self.folder, &variables, None).0)
    }
}

struct Tar {
    folder: PathBuf,
    variables: Vec<(String, String)>,
    endpoint: String,
    counts: Counts,
    round: usize,
}

impl Tool for Tar {
    fn name(&self) -> &'static str {
        "tar.gz"
    }

    fn run(&mut self, operation: &str, files: &Path, to: &Path) -> Option<Measured> {
        let url = format!("{}/{}/tar-{}-{}.tar.gz", self.endpoint, landfall_tests::seaweed::BUCKET, std::process::id(), self.round);
        let value = |name: &str| self.variables.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone()).unwrap_or_default();
        let user = format!("{}:{}", value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY"));
        let curl = format!("curl -sS --fail --aws-sigv4 aws:amz:us-east-1:s3 --user '{user}'");
        let script = match operation {
            "full restore" => {
                format!("{curl} -o got.tar.gz '{url}' && mkdir -p '{0}' && tar -xzf got.tar.gz -C '{0}' && sync -f '{0}'", to.display())
            }
            "one file read, fresh" => {
                let one = data::changed(files);
                format!("{curl} -o got.tar.gz '{url}' && tar -xzOf got.tar.gz './{}'", one.display())
            }
            _ => format!("tar -czf put.tar.gz -C '{}' . && {curl} -T put.tar.gz '{url}'", files.display()),
        };
        Some(measure::run("sh", &["-c", &script], &self.folder, &[], Some(&self.counts)).0)
    }
}

/// The Python system that keeps checkpoints as archives in S3.
struct Agno {
    python: String,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    endpoint: String,
    counts: Counts,
    round: usize,
}

impl Tool for Agno {
    fn name(&self) -> &'static str {
        "agno"
    }

    fn run(&mut self, operation: &str, files: &Path, to: &Path) -> Option<Measured> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/agno_peer.py");
        let verb = match operation {
            "full restore" => "restore",
            "one file read, fresh" => return None,
            _ => "put",
        };
        let prefix = format!("agno-{}-{}/", std::process::id(), self.round);
        let (files, to) = (files.display().to_string(), to.display().to_string());
        let arguments = [script, verb, &self.endpoint, landfall_tests::seaweed::BUCKET, &prefix, &files, &to];
        Some(measure::run(&self.python, &arguments, &self.folder, &self.variables, Some(&self.counts)).0)
    }
}
