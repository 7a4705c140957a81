//! Tries to reach the network in every way that `wasi:sockets` has, calling it directly (the C library of some toolchains has no
//! sockets), and prints how each was refused. Exits with 1 when one wasn't.

mod bindings {
    wit_bindgen::generate!({
        inline: r"
            package landfall:sockets-probe;
            world probe {
                import wasi:sockets/instance-network@0.2.12;
                import wasi:sockets/ip-name-lookup@0.2.12;
                import wasi:sockets/tcp-create-socket@0.2.12;
                import wasi:sockets/udp-create-socket@0.2.12;
            }
        ",
        path: "../../../wit",
        generate_all,
    });
}

use std::process::ExitCode;

use bindings::wasi::sockets::instance_network::instance_network;
use bindings::wasi::sockets::ip_name_lookup::resolve_addresses;
use bindings::wasi::sockets::network::{ErrorCode, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress, Network};
use bindings::wasi::sockets::tcp_create_socket::create_tcp_socket;
use bindings::wasi::sockets::udp_create_socket::create_udp_socket;

fn main() -> ExitCode {
    let network = instance_network();
    let mut code = ExitCode::SUCCESS;
    for (what, family) in [("v4", IpAddressFamily::Ipv4), ("v6", IpAddressFamily::Ipv6)] {
        let tries = [
            ("connect", connect(&network, family)),
            ("listen", listen(&network, family)),
            ("udp bind", udp_bind(&network, family)),
            ("udp send", udp_send(family)),
        ];
        for (how, result) in tries {
            say(&mut code, &format!("{how} {what}"), result);
        }
    }
    say(&mut code, "lookup", lookup(&network, "localhost"));
    say(&mut code, "lookup of an address", lookup(&network, "127.0.0.1"));
    code
}

fn say(code: &mut ExitCode, what: &str, result: Result<(), ErrorCode>) {
    match result {
        Ok(()) => {
            println!("{what}: allowed");
            *code = ExitCode::FAILURE;
        }
        Err(error) => println!("{what}: {}", error.name()),
    }
}

fn address(family: IpAddressFamily, port: u16) -> IpSocketAddress {
    match family {
        IpAddressFamily::Ipv4 => IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address: (127, 0, 0, 1) }),
        IpAddressFamily::Ipv6 => {
            IpSocketAddress::Ipv6(Ipv6SocketAddress { port, flow_info: 0, address: (0, 0, 0, 0, 0, 0, 0, 1), scope_id: 0 })
        }
    }
}

fn connect(network: &Network, family: IpAddressFamily) -> Result<(), ErrorCode> {
    let socket = create_tcp_socket(family)?;
    socket.start_connect(network, address(family, 80))?;
    loop {
        socket.subscribe().block();
        match socket.finish_connect() {
            // The connection itself was tried: that the peer refused it makes no difference.
            Ok(_) | Err(ErrorCode::ConnectionRefused) => return Ok(()),
            Err(ErrorCode::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
}

fn listen(network: &Network, family: IpAddressFamily) -> Result<(), ErrorCode> {
    let socket = create_tcp_socket(family)?;
    socket.start_bind(network, address(family, 0))?;
    socket.finish_bind()?;
    socket.start_listen()?;
    socket.finish_listen()
}

fn udp_bind(network: &Network, family: IpAddressFamily) -> Result<(), ErrorCode> {
    let socket = create_udp_socket(family)?;
    socket.start_bind(network, address(family, 0))?;
    socket.finish_bind()
}

fn udp_send(family: IpAddressFamily) -> Result<(), ErrorCode> {
    let socket = create_udp_socket(family)?;
    socket.stream(Some(address(family, 53))).map(drop)
}

fn lookup(network: &Network, name: &str) -> Result<(), ErrorCode> {
    let answers = resolve_addresses(network, name)?;
    loop {
        match answers.resolve_next_address() {
            Ok(_) => return Ok(()),
            Err(ErrorCode::WouldBlock) => answers.subscribe().block(),
            Err(error) => return Err(error),
        }
    }
}
