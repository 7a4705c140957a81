use super::*;

fn code(text: &str) -> &'static str {
    classify(text.parse().unwrap()).code()
}

#[test]
fn both_edges_of_every_block_are_refused_and_its_neighbours_are_not_in_it() {
    for (net, class) in table::V4 {
        for edge in [net.network(), net.broadcast()] {
            let got = classify_v4(edge);
            assert!(got == *class || table::V4.iter().any(|(inner, other)| *other == got && net.contains(inner)), "{edge}: {got:?}");
            assert!(!classify(edge.into()).is_allowed());
            // The same through a translator.
            let [a, b, c, d] = edge.octets().map(u16::from);
            let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d);
            assert!(classify(translated.into()).code().starts_with("ip_nat64_"), "{translated}");
        }
    }
    for (net, class) in table::V6 {
        let got = classify_v6(net.broadcast());
        assert!(got == *class || *class == Class::Compatible, "{net}: {got:?}");
        assert!(!classify(net.network().into()).is_allowed());
    }
}

#[test]
fn ipv6_is_public_only_inside_its_global_space() {
    for (address, expected) in [
        ("1fff:ffff::1", "ip_not_2000"),
        ("2000::1", "ok"),
        ("3fff:1000::1", "ok"),
        ("4000::1", "ip_not_2000"),
        ("5f00::1", "ip_not_2000"),
        ("64:ff9b::1:0:0:1", "ip_not_2000"),
        ("64:ff9b:1:ffff::1", "ip_nat64_local"),
        ("64:ff9b:2::1", "ip_not_2000"),
        ("2001:1ff:ffff::1", "ip_ietf"),
        ("2a01::200:5efe:808:808", "ip_isatap"),
        ("2a01::100:5efe:808:808", "ok"),
        ("::1", "ip_loopback"),
        ("::", "ip_unspecified"),
        ("255.255.255.255", "ip_broadcast"),
        ("198.19.255.255", "ip_benchmark"),
        ("64:ff9b::6440:1", "ip_nat64_cgnat"),
    ] {
        assert_eq!(code(address), expected, "{address}");
    }
}

#[test]
fn the_machines_own_addresses_are_refused_in_every_form_that_reaches_them() {
    let own: OwnAddresses = ["203.0.114.7", "2a00::7", "127.0.0.1", "10.0.0.4"].iter().map(|text| text.parse().unwrap()).collect();
    for (address, expected) in [
        ("203.0.114.7", "ip_self"),
        ("2a00::7", "ip_self"),
        ("10.0.0.4", "ip_self"),
        ("64:ff9b::cb00:7207", "ip_nat64_self"),
        ("127.0.0.1", "ip_loopback"),
        ("::ffff:203.0.114.7", "ip_mapped"),
        ("203.0.114.8", "ok"),
    ] {
        assert_eq!(judge(address.parse().unwrap(), &own).code(), expected, "{address}");
    }
    assert_eq!(own.outward(), Some("10.0.0.4".parse().unwrap()));
}

#[test]
fn a_range_that_an_operator_opened_holds_for_its_host_and_never_for_metadata() {
    let range = PrivateRange { host: "git.corp.example.com".to_owned(), nets: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()] };
    assert!(range.opens("git.corp.example.com", "10.1.2.3".parse().unwrap()));
    assert!(!range.opens("other.corp.example.com", "10.1.2.3".parse().unwrap()));
    for metadata in ["169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"]
    {
        assert!(!range.opens("git.corp.example.com", metadata.parse().unwrap()), "{metadata}");
    }
}
