//! `https://` with the binary as client and as server.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair, generate_simple_self_signed,
};

use crate::{
    env::{TestEnv, noise},
    remote::says,
    serve::{Serving, commit},
};

/// Writes `NAME.pem`, a certificate for this machine, and its key `NAME.key`. Returns the path of
/// the certificate.
pub(crate) fn certificate(env: &TestEnv, name: &str) -> String {
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    env.write(&format!("{name}.pem"), cert.pem());
    env.write(&format!("{name}.key"), signing_key.serialize_pem());
    env.path(format!("{name}.pem")).to_str().unwrap().to_owned()
}

#[test]
fn a_store_goes_both_ways_over_tls_where_the_certificate_is_trusted() {
    let mut env = TestEnv::new();
    fs_err::create_dir(env.path("stores")).unwrap();
    for number in 0..20 {
        env.write(&format!("work/src/{number}"), format!("text {number}"));
    }
    env.write("work/large", noise(5, 5 << 20));
    commit(&env, "work", "first\n");
    let (trusted, other) = (certificate(&env, "cert"), certificate(&env, "other"));
    let args = ["stores", "--tls-cert", "cert.pem", "--tls-key", "cert.key"];
    let serving = Serving::logging(&env, "", &args);
    assert!(serving.url.starts_with("https://127.0.0.1:"), "{}", serving.url);
    let url = format!("{}/team/project", serving.url);
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();

    env.set("SSL_CERT_FILE", &other);
    let refused = env.snap_in("work", ["push", "-q"]);
    let told = ["certificate", "hint: the certificate is not trusted", "SSL_CERT_FILE"];
    says(&refused, 1, &told);
    env.set("SSL_CERT_FILE", &trusted);
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.snap(["clone", "-q", &url, "copy"]).succeeds();
    let tree = |dir: &str| env.snap_in(dir, ["ls", "-R", "main"]).succeeds().stdout;
    assert_eq!(tree("work"), tree("copy"));
    assert!(fs_err::read(env.path("copy/large")).unwrap() == noise(5, 5 << 20));
    commit(&env, "copy", "second\n");
    env.snap_in("copy", ["push", "-q"]).succeeds();
    env.snap_in("work", ["pull", "-q"]).succeeds();
    let notes = env.snap_in("work", ["cat", "main:notes.txt"]).succeeds().stdout;
    assert_eq!(notes, "second\n");

    serving.stop();
    let log = env.read("log");
    let answered: Vec<_> = log.lines().filter(|line| line.contains("answered")).collect();
    assert!(answered.len() > 5, "{log}");
    assert!(answered.iter().all(|line| line.contains(" version=HTTP/2.0 ")), "{log}");
}

#[test]
fn an_authority_that_is_its_own_server_is_told() {
    let mut env = TestEnv::new();
    commit(&env, "here", "first\n");
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    env.write("cert.pem", params.self_signed(&key).unwrap().pem());
    env.write("cert.key", key.serialize_pem());
    let args = ["here", "--tls-cert", "cert.pem", "--tls-key", "cert.key"];
    let serving = Serving::logging(&env, "", &args);
    let trusted = env.path("cert.pem").to_str().unwrap().to_owned();
    env.set("SSL_CERT_FILE", &trusted);
    let refused = env.snap(["clone", "-q", &serving.url, "copy"]);
    says(&refused, 1, &["certificate", "hint: the server presents a CA certificate"]);
}

#[test]
fn what_is_no_pair_of_certificate_and_key_is_told() {
    let env = TestEnv::new();
    fs_err::create_dir(env.path("stores")).unwrap();
    certificate(&env, "cert");
    certificate(&env, "other");
    let serve =
        |cert: &str, key: &str| env.snap(["serve", "stores", "--tls-cert", cert, "--tls-key", key]);
    says(
        &serve("cert.key", "cert.key"),
        2,
        &["contains no certificate in PEM format", "hint: use PEM files"],
    );
    says(
        &serve("cert.pem", "cert.pem"),
        2,
        &["contains no private key in PEM format", "hint: use PEM files"],
    );
    says(
        &serve("cert.pem", "other.key"),
        2,
        &["do not match or are not supported", "hint: use PEM files"],
    );
    says(&serve("none.pem", "cert.key"), 1, &["none.pem"]);
    let half = env.snap(["serve", "stores", "--tls-cert", "cert.pem"]);
    says(&half, 2, &["--tls-key"]);
}
