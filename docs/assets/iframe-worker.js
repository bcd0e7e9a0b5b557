// A browser starts no worker from a file on disk. This class runs the script of the search in a
// hidden frame instead, so that the search also works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      // A worker posts to its parent, and loads scripts by their addresses.
      inside.document.open()
      inside.document.write("<!doctype html><title>Search</title>")
      inside.document.close()
      inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })))
      inside.importScripts = (...urls) =>
        urls.reduce((last, each) => last.then(() => load(inside, each)), Promise.resolve())
      this.frame = frame
      this.ready = load(inside, url)
    }
    postMessage(data) {
      const inside = this.frame.contentWindow
      this.ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    set onmessage(handler) {
      this.addEventListener("message", handler)
    }
    terminate() {
      this.frame.remove()
    }
  }

  function load(inside, url) {
    return new Promise((resolve, reject) => {
      const script = inside.document.createElement("script")
      script.src = new URL(url, document.baseURI).href
      script.onload = resolve
      script.onerror = reject
      inside.document.body.append(script)
    })
  }
}
