//! Serves the git repositories of a folder over TLS on loopback with the real `git http-backend`, behind a user name and a token.
//! For `cargo xtask demo`: `git-server FOLDER TOKEN CA-FILE` writes its authority's certificate to CA-FILE, prints its URL and stops when
//! its standard input ends.
#![expect(clippy::print_stdout, reason = "the URL on stdout is what it is for")]

use std::path::Path;

use landfall_tests::git_server::GitServer;
use tokio::io::AsyncReadExt as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, token, ca_file] = arguments.as_slice() else {
        anyhow::bail!("usage: git-server FOLDER TOKEN CA-FILE");
    };
    let server = GitServer::start(Path::new(folder)).await?;
    server.require(Some(("x-access-token", token)));
    std::fs::write(ca_file, server.ca_pem().unwrap_or_default())?;
    println!("{}", server.url(""));
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    Ok(())
}
