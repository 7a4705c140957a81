//! Runs a `wasi:cli/command` component on filesystems, with as little else as it needs: what a guest sees of its files can be tested
//! without the pipeline of a turn. The same component also runs on wasmtime's own files, to compare.

use std::path::Path;

use landfall::workspace::Workspace;
use landfall::workspace::wasi::{FilesystemCtx, FilesystemHost, FilesystemView, INITIAL_CWD};
use wasmtime::component::{Component, HasData, Linker, ResourceTable};
use wasmtime::{Config, Engine, Store};
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
use wasmtime_wasi::p2::bindings::{self, CommandPre};
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

/// A compiled command, ready to run.
pub struct Command {
    engine: Engine,
    component: Component,
    pre: CommandPre<Data>,
}

/// What a run of a command left.
#[derive(Debug)]
pub struct Outcome {
    /// Everything it printed.
    pub stdout: String,
    /// Everything it printed to stderr.
    pub stderr: String,
    /// How it ended: well, with a failure of its own, or by a trap.
    pub end: wasmtime::Result<Result<(), ()>>,
}

impl Outcome {
    /// Returns what it printed when it ended well.
    ///
    /// # Panics
    /// With all of the outcome otherwise.
    #[must_use]
    #[track_caller]
    pub fn text(self) -> String {
        assert!(matches!(self.end, Ok(Ok(()))), "{self:#?}");
        self.stdout
    }

    /// Returns the trap it ended with.
    ///
    /// # Panics
    /// When it ended by itself.
    #[must_use]
    #[track_caller]
    pub fn trap(self) -> wasmtime::Error {
        match self.end {
            Err(error) => error,
            Ok(_) => panic!("no trap: {self:#?}"),
        }
    }
}

struct Data {
    wasi: WasiCtx,
    table: ResourceTable,
    files: FilesystemCtx,
}

impl WasiView for Data {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl FilesystemHost for Data {
    fn filesystem(&mut self) -> FilesystemView<'_> {
        FilesystemView { ctx: &mut self.files, table: &mut self.table }
    }
}

struct HasIo;

impl HasData for HasIo {
    type Data<'a> = &'a mut ResourceTable;
}

impl Command {
    /// Loads a built guest.
    ///
    /// # Panics
    /// When it wasn't built or isn't a command.
    #[must_use]
    pub fn guest(name: &str) -> Self {
        Self::load(&crate::guests::path(name))
    }

    /// Compiles a component.
    ///
    /// # Panics
    /// When it isn't a command.
    #[must_use]
    pub fn load(file: &Path) -> Self {
        let engine = Engine::new(&Config::new()).unwrap();
        let component = Component::from_file(&engine, file).unwrap();
        let mut linker = Linker::new(&engine);
        link(&mut linker).unwrap();
        let pre = CommandPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        Self { engine, component, pre }
    }

    /// Runs it on a workspace. The first argument, the program's name, is added.
    pub async fn run(&self, workspace: &Workspace, arguments: &[&str]) -> Outcome {
        self.run_with(FilesystemCtx::new(workspace), arguments).await
    }

    /// Runs it on any filesystems.
    pub async fn run_with(&self, files: FilesystemCtx, arguments: &[&str]) -> Outcome {
        let (mut wasi, output) = builder(arguments);
        let mut table = ResourceTable::new();
        table.set_max_capacity(20_000);
        let mut store = Store::new(&self.engine, Data { wasi: wasi.build(), table, files });
        let end = async {
            let command = self.pre.instantiate_async(&mut store).await?;
            command.wasi_cli_run().call_run(&mut store).await
        };
        let end = end.await;
        drop(store);
        output.outcome(end)
    }

    /// Runs it on directories of this machine, served by wasmtime as its own command does it: `(directory, path in the guest)`.
    ///
    /// # Panics
    /// When a directory can't be opened.
    pub async fn run_on_host(&self, directories: &[(&Path, &str)], arguments: &[&str]) -> Outcome {
        struct Host {
            wasi: WasiCtx,
            table: ResourceTable,
        }
        impl WasiView for Host {
            fn ctx(&mut self) -> WasiCtxView<'_> {
                WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
            }
        }
        let (mut wasi, output) = builder(arguments);
        // As the command line tool: system calls in the call itself, not on another thread.
        wasi.allow_blocking_current_thread(true);
        for (directory, path) in directories {
            wasi.preopened_dir(directory, *path, FsPerms::ReadWrite).unwrap();
        }
        let mut linker = Linker::new(&self.engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        let pre = CommandPre::new(linker.instantiate_pre(&self.component).unwrap()).unwrap();
        let mut store = Store::new(&self.engine, Host { wasi: wasi.build(), table: ResourceTable::new() });
        let end = async {
            let command = pre.instantiate_async(&mut store).await?;
            command.wasi_cli_run().call_run(&mut store).await
        };
        let end = end.await;
        drop(store);
        output.outcome(end)
    }
}

struct Output {
    stdout: MemoryOutputPipe,
    stderr: MemoryOutputPipe,
}

impl Output {
    fn outcome(self, end: wasmtime::Result<Result<(), ()>>) -> Outcome {
        // A program that exits with 1 does so by a trap of its own kind.
        let end = match end {
            Err(error) if error.downcast_ref::<wasmtime_wasi::I32Exit>().is_some_and(|exit| exit.0 != 0) => Ok(Err(())),
            Err(error) if error.is::<wasmtime_wasi::I32Exit>() => Ok(Ok(())),
            other => other,
        };
        let text = |pipe: &MemoryOutputPipe| String::from_utf8_lossy(&pipe.contents()).into_owned();
        Outcome { stdout: text(&self.stdout), stderr: text(&self.stderr), end }
    }
}

fn builder(arguments: &[&str]) -> (WasiCtxBuilder, Output) {
    let output = Output { stdout: MemoryOutputPipe::new(1 << 20), stderr: MemoryOutputPipe::new(1 << 20) };
    let mut wasi = WasiCtx::builder();
    wasi.arg("command").args(arguments).initial_cwd(INITIAL_CWD).stdout(output.stdout.clone()).stderr(output.stderr.clone());
    (wasi, output)
}

fn link(l: &mut Linker<Data>) -> wasmtime::Result<()> {
    use bindings::{cli, clocks, io, random};
    io::error::add_to_linker::<Data, HasIo>(l, |t| &mut t.table)?;
    io::poll::add_to_linker::<Data, HasIo>(l, |t| &mut t.table)?;
    io::streams::add_to_linker::<Data, HasIo>(l, |t| &mut t.table)?;
    clocks::wall_clock::add_to_linker::<Data, WasiClocks>(l, Data::clocks)?;
    clocks::monotonic_clock::add_to_linker::<Data, WasiClocks>(l, Data::clocks)?;
    random::random::add_to_linker::<Data, WasiRandom>(l, |t| t.wasi.random())?;
    random::insecure_seed::add_to_linker::<Data, WasiRandom>(l, |t| t.wasi.random())?;
    cli::exit::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::environment::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::stdin::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::stdout::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::stderr::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::terminal_input::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::terminal_output::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::terminal_stdin::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::terminal_stdout::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    cli::terminal_stderr::add_to_linker::<Data, WasiCli>(l, Data::cli)?;
    landfall::workspace::wasi::add_to_linker(l)
}
