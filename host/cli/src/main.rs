//! The `landfall` command: a thin layer over the library. It parses, asks and prints.

mod args;
mod commands;
mod environment;
mod exit;
mod output;
mod progress;
mod server;
mod setup;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        // clap prints help on stdout with code 0 and errors on stderr with code 2.
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let json = cli.global.json;
    // The library's own notes: warnings on stderr, more with LANDFALL_LOG=info or debug.
    let filter = tracing_subscriber::EnvFilter::try_from_env("LANDFALL_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    let done = commands::answer(&cli).unwrap_or_else(|| {
        environment::read(&cli.global, commands::needs(&cli.command)).and_then(|environment| {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let done = runtime.block_on(commands::run(cli, environment));
            // A blocked helper thread (a fetch that hangs) must not keep a finished command from ending.
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
            done
        })
    });
    match done {
        Ok(exit::Done::Ok) => ExitCode::SUCCESS,
        Ok(exit::Done::Failed) => ExitCode::from(1),
        Ok(exit::Done::Usage) => ExitCode::from(2),
        Ok(exit::Done::Denied) => ExitCode::from(3),
        Err(error) => exit::report(&error, json),
    }
}
