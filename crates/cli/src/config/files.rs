//! Checks of the certificate and key files that the settings name.

use std::path::Path;

use barid_server::settings::Settings;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::problem::Place;
use super::validate::{Objections, listeners};

pub fn check(settings: &Settings, found: &mut Objections) {
    if let Some(tls) = settings.cluster.as_ref().and_then(|cluster| cluster.tls.as_ref()) {
        let place = |key| Place::of(&["cluster", "tls", key]);
        check_certificate(place, (&tls.certificate, &tls.key), found);
        read_certificates(place("ca"), &tls.ca, found);
    }
    let Some(tls) = &settings.tls else {
        for (name, _) in
            listeners(settings).filter(|(name, _)| matches!(*name, "mqtts" | "wss" | "amqps"))
        {
            found.add(
                Place::of(&["listeners", name, "address"]),
                format!("the {name} listener has no certificate"),
                "add a [tls] table with `certificate` and `key`, or switch the listener off",
            );
        }
        return;
    };
    check_certificate(|key| Place::of(&["tls", key]), (&tls.certificate, &tls.key), found);
    for (i, list) in tls.crl.iter().enumerate() {
        let place = Place::of(&["tls", "crl"]).index(i);
        let lists = CertificateRevocationListDer::pem_file_iter(list)
            .and_then(|lists| lists.collect::<Result<Vec<_>, _>>());
        match lists {
            Ok(lists) if lists.is_empty() => {
                object(place, list, "revocation list", &pem::Error::NoItemsFound, found);
            }
            Ok(_) if tls.client_ca.is_none() => found.add(
                place,
                "a revocation list needs the authority whose certificates it revokes",
                "set `client_ca` to the PEM file of this authority",
            ),
            Ok(_) => {}
            Err(error) => object(place, list, "revocation list", &error, found),
        }
    }
    if let Some(client_ca) = &tls.client_ca {
        read_certificates(Place::of(&["tls", "client_ca"]), client_ca, found);
    } else if tls.require_client_certificate {
        found.add(
            Place::of(&["tls", "require_client_certificate"]),
            "client certificates are required, but no authority is named that issues them",
            "set `client_ca` to the PEM file of this authority",
        );
    }
}

/// Checks a certificate and its key, whose entries are at these places.
fn check_certificate(
    place: impl Fn(&'static str) -> Place,
    (certificate, key): (&Path, &Path),
    found: &mut Objections,
) {
    let chain = read_certificates(place("certificate"), certificate, found);
    match PrivateKeyDer::from_pem_file(key) {
        Ok(private) => check_pair(place("key"), chain, private, found),
        Err(error) => object(place("key"), key, "private key", &error, found),
    }
}

/// Reads the certificates in a file; none if the file is unusable.
pub fn read_certificates(
    place: Place,
    path: &Path,
    found: &mut Objections,
) -> Vec<CertificateDer<'static>> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            object(place, path, "certificate", &pem::Error::NoItemsFound, found);
            certificates
        }
        Ok(certificates) => certificates,
        Err(error) => {
            object(place, path, "certificate", &error, found);
            Vec::new()
        }
    }
}

fn check_pair(
    place: Place,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    found: &mut Objections,
) {
    if chain.is_empty() {
        return;
    }
    match CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()) {
        Ok(_) => {}
        Err(rustls::Error::InconsistentKeys(_)) => found.add(
            place,
            "this is not the private key of the certificate",
            "the first certificate of the file must be the broker's own, before the intermediate ones",
        ),
        Err(error) => found.add(place, format!("certificate and key cannot be used: {error}"), ""),
    }
}

fn object(place: Place, path: &Path, kind: &str, error: &pem::Error, found: &mut Objections) {
    let path = path.display();
    match error {
        pem::Error::Io(error) => {
            let hint = "a relative path is relative to the directory in which barid was started";
            found.add(place, format!("cannot read {path}: {error}"), hint);
        }
        pem::Error::NoItemsFound => {
            let hint = "the file must be PEM: it has lines like -----BEGIN …-----";
            found.add(place, format!("there is no {kind} in {path}"), hint);
        }
        error => found.add(place, format!("{path} is not a PEM file: {error}"), ""),
    }
}
