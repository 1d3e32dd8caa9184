use mqtt_proto::{FixedHeader, MAX_PACKET_LEN, Packet, Properties, topic};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::{VERSIONS, decode, encode, versioned_packet};

/// Checks that every packet that can be decoded can be encoded, and is then decoded to the same
/// packet.
fn check_all_versions(bytes: &[u8]) -> Result<(), TestCaseError> {
    for version in VERSIONS {
        if let Ok(packet) = decode(version, bytes) {
            let again = encode(version, &packet);
            prop_assert_eq!(decode(version, &again), Ok(packet));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..64)) {
        check_all_versions(&bytes)?;
    }

    #[test]
    fn an_arbitrary_body_with_a_true_length(first: u8, body in vec(any::<u8>(), 0..64)) {
        let mut bytes = Vec::new();
        FixedHeader::put(first, body.len(), &mut bytes).unwrap();
        bytes.extend_from_slice(&body);
        check_all_versions(&bytes)?;
    }

    #[test]
    fn a_packet_with_one_wrong_byte(
        (version, packet) in versioned_packet(),
        at: prop::sample::Index,
        wrong: u8,
    ) {
        let mut bytes = encode(version, &packet);
        let at = at.index(bytes.len());
        bytes[at] = wrong;
        check_all_versions(&bytes)?;
    }

    #[test]
    fn a_header_that_lies_about_the_length(
        header_len in 0..9_usize,
        body_len: usize,
        first: u8,
        body in vec(any::<u8>(), 0..16),
    ) {
        let header = FixedHeader { first, header_len, body_len };
        for version in VERSIONS {
            prop_assert!(
                Packet::decode(version, header, &body).is_err() || body_len == body.len()
            );
        }
    }

    #[test]
    fn properties_never_validated(bytes in vec(any::<u8>(), 0..32)) {
        let properties = Properties::from_validated(&bytes);
        let raw: usize = properties.raw().map(|raw| raw.bytes.len()).sum();
        prop_assert!(raw <= bytes.len());
        prop_assert!(properties.iter().count() <= properties.raw().count());
        prop_assert!(properties.user_properties().count() <= properties.iter().count());
        prop_assert!(properties.reason_string().is_none_or(|reason| reason.len() < bytes.len()));
    }

    #[test]
    fn a_valid_filter_matches_itself_unless_it_is_shared(filter in "[ab+#/$]{0,8}") {
        if topic::validate_filter(&filter).is_ok() && !topic::is_shared(&filter) {
            let dollar_behind_wildcard = filter.starts_with(['+', '#']);
            let name = filter.replace(['+', '#'], "x");
            prop_assert_eq!(topic::validate_name(&name), Ok(()));
            prop_assert!(topic::matches(&filter, &name));
            let dollar_name = format!("${name}");
            prop_assert!(!dollar_behind_wildcard || !topic::matches(&filter, &dollar_name));
        }
    }
}

#[test]
fn a_declared_length_is_only_compared() {
    let header = FixedHeader::read(&[0x82, 0xFF, 0xFF, 0xFF, 0x7F], MAX_PACKET_LEN);
    let header = header.unwrap().unwrap();
    for version in VERSIONS {
        assert!(Packet::decode(version, header, &[0, 1]).is_err());
    }
}
