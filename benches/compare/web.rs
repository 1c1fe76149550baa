//! The measured servers, `snap serve` and nginx on a folder, and the load generator `wrk`.

use std::{
    io::{BufRead as _, BufReader},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use fs_err as fs;

use crate::{Result, measure::Call, place::empty};

/// Timeout for the first response of nginx.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server, stopped on drop.
#[derive(Debug)]
pub(crate) struct Web {
    pub(crate) url: String,
    child: Child,
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Web {
    /// Starts `snap serve` for a store or a folder of stores.
    pub(crate) fn snap(program: &Path, served: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["--json", "serve", "--listen", "127.0.0.1:0"]).arg(served);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let told: serde_json::Value = serde_json::from_str(&line)?;
        let url = told["url"].as_str().ok_or("snap serve does not say where it is")?.to_owned();
        Ok(Self { url, child })
    }

    /// Starts nginx on a folder, with one worker for each processor, as Debian configures it. It
    /// accepts uploads.
    pub(crate) fn nginx(served: &Path, home: &Path) -> Result<Self> {
        empty(home)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (served, at) = (served.display(), home.display());
        let conf = format!(
            "worker_processes auto; daemon off; pid {at}/pid; error_log {at}/error; user root;\n\
             events {{ worker_connections 768; }}\n\
             http {{ sendfile on; tcp_nopush on; access_log off; default_type text/plain;\n\
             client_max_body_size 0; client_body_temp_path {at}/body; proxy_temp_path {at}/p;\n\
             fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
             server {{ listen 127.0.0.1:{port}; root {served}; dav_methods PUT; }} }}\n"
        );
        let file = home.join("nginx.conf");
        fs::write(&file, conf)?;
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let web = Self { url: format!("http://127.0.0.1:{port}"), child: command.spawn()? };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begin.elapsed() > PATIENCE {
                return Err("nginx does not answer".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(web)
    }

    /// Returns its peak memory in bytes, if the system reports it.
    pub(crate) fn peak_bytes(&self) -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib * 1024.0)
    }
}

/// The result of a load test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) secs_each: f64,
    pub(crate) p99_secs: f64,
}

/// Requests random paths over 64 connections for `secs` seconds.
pub(crate) fn load(url: &str, paths: &[String], secs: usize, home: &Path) -> Result<Load> {
    let script: PathBuf = home.join("wrk.lua");
    let list = home.join("wrk.paths");
    fs::write(&list, paths.join("\n"))?;
    fs::write(
        &script,
        format!(
            "local paths = {{}}\n\
             for line in io.lines('{}') do paths[#paths + 1] = line end\n\
             init = function() math.randomseed(tonumber(tostring({{}}):sub(8)) or 1) end\n\
             request = function() return wrk.format('GET', paths[math.random(#paths)]) end\n\
             done = function(all, latency)\n\
             local e = all.errors\n\
             print(string.format('told %d %d %d %d', all.requests, all.duration,\n\
             latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))\n\
             end\n",
            list.display()
        ),
    )?;
    let call = Call::new("wrk").args(["-t2", "-c64", &format!("-d{secs}s"), "-s"]);
    let out = call.arg(&script).arg(url).output()?;
    let told = out.lines().find_map(|line| line.strip_prefix("told "));
    let figures: Vec<f64> =
        told.unwrap_or_default().split(' ').filter_map(|figure| figure.parse().ok()).collect();
    match figures[..] {
        [requests, micros, p99, 0.0] if requests > 0.0 => {
            Ok(Load { secs_each: micros / 1e6 / requests, p99_secs: p99 / 1e6 })
        }
        _ => Err(format!("wrk had errors: {out}").into()),
    }
}
