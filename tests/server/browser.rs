//! A real browser for tests: headless Chromium, controlled through chromedriver.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    str::FromStr,
};

use fantoccini::{Client, ClientBuilder, Locator, key::Key, wd::WebDriverCompatibleCommand};
use reqwest::Url;
use serde_json::{Value, json};
use snap_testkit::{programs::find_or_skip, wait::PATIENCE};

/// The height of the highest screenshot, in pixels.
const MOST_HEIGHT: u32 = 3000;

/// The chromedriver process. Dropping it ends the process.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A browser with one window.
pub(crate) struct Browser {
    pub(crate) client: Client,
    _driver: Driver,
    _profile: tempfile::TempDir,
}

/// The state of JavaScript in the browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scripts {
    Run,
    Off,
}

/// Starts the driver on a free port and returns the port.
fn start(program: &Path) -> (Driver, u16) {
    let mut command = Command::new(program);
    command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut driver = Driver(command.spawn().unwrap());
    let lines = BufReader::new(driver.0.stdout.take().unwrap()).lines();
    for line in lines {
        let line = line.unwrap();
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return (driver, port.trim_end_matches('.').parse().unwrap());
        }
    }
    panic!("the driver did not start");
}

impl Browser {
    /// Starts a browser, or returns `None` if Chromium is not installed.
    pub(crate) async fn start(scripts: Scripts) -> Option<Self> {
        let find = |name| find_or_skip("a test in a browser", name);
        let (driver, chromium) = (find("chromedriver")?, find("chromium")?);
        let (driver, port) = start(&driver);
        let profile = tempfile::tempdir().unwrap();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let mut options = json!({
            "binary": chromium,
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                // Otherwise the driver connects to a port of `localhost`, and finds another name.
                "--remote-debugging-pipe",
                "--hide-scrollbars", "--window-size=1200,800", folder,
            ],
        });
        if scripts == Scripts::Off {
            let setting = "profile.managed_default_content_settings.javascript";
            options["prefs"] = json!({ setting: 2 });
        }
        let wanted = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(wanted) = wanted else { unreachable!() };
        let connector = hyper_util::client::legacy::connect::HttpConnector::new();
        let mut builder = ClientBuilder::new(connector);
        builder.capabilities(wanted);
        let client = builder.connect(&format!("http://127.0.0.1:{port}")).await.unwrap();
        let browser = Self { client, _driver: driver, _profile: profile };
        browser.size((1200, 800)).await;
        Some(browser)
    }

    /// Closes the browser.
    pub(crate) async fn close(self) {
        self.client.close().await.unwrap();
    }

    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// Clicks the element of a selector, once it exists.
    pub(crate) async fn click(&self, selector: &str) {
        self.wait(selector).await.click().await.unwrap();
    }

    /// Clicks the link with this text.
    pub(crate) async fn follow(&self, text: &str) {
        let wait = self.client.wait().at_most(PATIENCE);
        let link = wait.for_element(Locator::LinkText(text)).await.unwrap();
        link.click().await.unwrap();
    }

    /// Types a text and the enter key into a field, and returns once the next page is loaded.
    pub(crate) async fn enter(&self, selector: &str, text: &str) {
        self.wait(selector).await.send_keys(&format!("{text}{}", Key::Enter)).await.unwrap();
    }

    /// Waits for the element of a selector.
    pub(crate) async fn wait(&self, selector: &str) -> fantoccini::elements::Element {
        let wait = self.client.wait().at_most(PATIENCE);
        let found = wait.for_element(Locator::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("{selector}: {error}"))
    }

    /// Returns the text of the element.
    pub(crate) async fn text(&self, selector: &str) -> String {
        self.wait(selector).await.text().await.unwrap()
    }

    pub(crate) async fn value(&self, script: &str) -> Value {
        self.client.execute(&format!("return ({script});"), Vec::new()).await.unwrap()
    }

    /// Returns the path and query of the current address.
    pub(crate) async fn path(&self) -> String {
        let url = self.client.current_url().await.unwrap();
        url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
    }

    /// Returns the new messages in the browser's console.
    pub(crate) async fn told(&self) -> Vec<String> {
        let told =
            self.client.issue_cmd(Ask("se/log", json!({ "type": "browser" }))).await.unwrap();
        let told = told.as_array().cloned().unwrap_or_default();
        told.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    async fn tool(&self, name: &str, params: Value) -> Value {
        let body = json!({ "cmd": name, "params": params });
        self.client.issue_cmd(Ask("goog/cdp/execute", body)).await.unwrap()
    }

    /// Emulates the light or dark colour scheme.
    pub(crate) async fn scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.tool("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Resizes the window. A narrow one emulates a phone.
    pub(crate) async fn size(&self, (width, height): (u32, u32)) {
        let is_narrow = width < 600;
        let params = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_narrow,
        });
        self.tool("Emulation.setDeviceMetricsOverride", params).await;
    }

    /// Makes downloads go to a folder.
    pub(crate) async fn save_to(&self, folder: &Path) {
        let params = json!({ "behavior": "allow", "downloadPath": folder });
        self.tool("Browser.setDownloadBehavior", params).await;
    }

    /// Saves a screenshot in the folder of `SNAP_PAGE_PICTURES`, if that is set.
    pub(crate) async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("SNAP_PAGE_PICTURES") else { return };
        let picture = self.client.screenshot().await.unwrap();
        fs_err::write(Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }

    /// Makes the window as high as the page, so that a screenshot shows all of it.
    pub(crate) async fn show_all(&self, width: u32) {
        let height = self.value("document.documentElement.scrollHeight").await;
        let height = height.as_u64().unwrap().min(MOST_HEIGHT.into());
        self.size((width, u32::try_from(height).unwrap())).await;
    }
}

/// A command that only chromedriver knows.
#[derive(Debug)]
struct Ask(&'static str, Value);

impl WebDriverCompatibleCommand for Ask {
    fn endpoint(
        &self,
        base_url: &Url,
        session_id: Option<&str>,
    ) -> Result<Url, <Url as FromStr>::Err> {
        base_url.join(&format!("session/{}/{}", session_id.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.1.to_string()))
    }
}
