//! Tests of TLS: HTTP/2, and certificates that are replaced while the server runs.

use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use reqwest::{Certificate, Client, Version};
use snap_server::{settings::ServerSettings, tls::Tls};

use crate::place::{Place, Serving};

/// How often the server looks whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Waits until the server has looked at its files.
async fn looks_again(serving: &Serving) {
    serving.pass(LOOK_EVERY).await;
    serving.until_sleeping(LOOK_EVERY).await;
}

/// Writes a new certificate and key for localhost. Returns their paths and the
/// certificate.
fn make(place: &Place) -> (Tls, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = files(place);
    fs_err::write(&tls.cert, cert.pem()).unwrap();
    fs_err::write(&tls.key, signing_key.serialize_pem()).unwrap();
    (tls, cert.pem())
}

fn files(place: &Place) -> Tls {
    let folder = place.folder.path();
    Tls { cert: folder.join("cert.pem"), key: folder.join("key.pem") }
}

fn client(certificate: &str) -> Client {
    let certificate = Certificate::from_pem(certificate.as_bytes()).unwrap();
    Client::builder().tls_certs_only([certificate]).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_loaded_and_a_broken_one_is_not() {
    let place = Place::new();
    let (tls, first) = make(&place);
    let serving =
        Serving::start(&place, ServerSettings { tls: Some(tls), ..ServerSettings::default() });
    let port = serving.origin().rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}/v1");
    let asked = client(&first).get(&url).send().await.unwrap();
    assert_eq!((asked.status().as_u16(), asked.version()), (200, Version::HTTP_2));
    // A plain HTTP client gets no response.
    assert!(Client::new().get(format!("http://localhost:{port}/v1")).send().await.is_err());
    fs_err::write(files(&place).key, "-----BEGIN PRIVATE KEY-----\nwhat\n").unwrap();
    looks_again(&serving).await;
    assert!(client(&first).get(&url).send().await.is_ok(), "the old certificate stays in use");
    let (_, second) = make(&place);
    looks_again(&serving).await;
    assert!(client(&second).get(&url).send().await.is_ok(), "the new certificate is not in use");
    assert!(client(&first).get(&url).send().await.is_err(), "the old certificate is still in use");
}
