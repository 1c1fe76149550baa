//! Clients: OpenDAL for S3 and WebDAV, reqwest for plain requests.

use std::{sync::Once, time::Duration};

use opendal::{HttpTransporter, OperationContext, Operator, services};
use opendal_http_transport_reqwest::ReqwestTransport;
use snap_nettest::S3Server;

/// Returns a client that ignores the settings of the machine.
pub(crate) fn plain() -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        rustls::crypto::ring::default_provider().install_default().unwrap();
    });
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap()
}

/// Returns a client of the server's bucket that uses `endpoint`.
pub(crate) fn s3(server: &S3Server, endpoint: &str) -> Operator {
    s3_as(server, endpoint, (server.access_key(), server.secret_key()))
}

/// As [`s3`], with other keys.
pub(crate) fn s3_as(server: &S3Server, endpoint: &str, keys: (&str, &str)) -> Operator {
    let service = services::S3::default()
        .bucket(server.bucket())
        .region(S3Server::REGION)
        .endpoint(endpoint)
        .access_key_id(keys.0)
        .secret_access_key(keys.1)
        .disable_config_load();
    with_transport(Operator::new(service).unwrap())
}

pub(crate) fn with_transport(operator: Operator) -> Operator {
    let transport = HttpTransporter::new(ReqwestTransport::new(plain()));
    operator.with_context(OperationContext::new().with_http_transport(transport))
}
