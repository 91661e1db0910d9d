// What a user of the `ai` package does with batches, under the names that package gives them. Run with URL, API_KEY and MODEL in the
// environment; prints one JSON object: for each part null, or what went wrong.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import {
  experimental_cancelBatch as cancelBatch,
  experimental_getBatchResults as getBatchResults,
  experimental_getBatchStatus as getBatchStatus,
  experimental_listBatches as listBatches,
  experimental_startBatch as startBatch,
  uploadFile,
} from "ai";

const { URL: url, API_KEY: apiKey, MODEL: model } = process.env;
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey });
const provider = openai;

const requests = (count, prompt = "hi", name = model) =>
  Array.from({ length: count }, (_, n) => ({ id: `r${n}`, type: "text", model: name, prompt, maxOutputTokens: 16 }));

async function finished(batch) {
  const ends = Date.now() + 120_000;
  for (;;) {
    const status = await getBatchStatus({ provider, batch });
    if (status.status !== "pending") return status;
    assert.ok(Date.now() < ends, JSON.stringify(status));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const parts = {
  async a_batch_from_start_to_results() {
    const batch = await startBatch({ provider, requests: requests(4) });
    assert.match(batch.id, /^batch_/);
    const status = await finished(batch);
    assert.equal(status.status, "completed", JSON.stringify(status));
    assert.equal(status.requestCounts.total, 4);
    const results = [];
    for await (const item of getBatchResults({ provider, batch })) results.push(item);
    assert.deepEqual(results.map((item) => item.id).sort(), ["r0", "r1", "r2", "r3"]);
    for (const item of results) {
      assert.equal(item.status, "succeeded", JSON.stringify(item));
      assert.equal(item.text, "echo");
      assert.ok(item.usage.totalTokens > 0);
    }
  },

  async a_failed_line_says_why() {
    const batch = await startBatch({ provider, requests: [...requests(1), { ...requests(2)[1], prompt: "echo: status=400" }] });
    await finished(batch);
    const results = {};
    for await (const item of getBatchResults({ provider, batch })) results[item.id] = item;
    assert.equal(results.r0.status, "succeeded", JSON.stringify(results.r0));
    assert.equal(results.r1.status, "failed");
    assert.equal(results.r1.error.code, "status_400", JSON.stringify(results.r1));
  },

  async a_refused_file_says_why() {
    const batch = await startBatch({ provider, requests: requests(2, "hi", "no-such-model") });
    const status = await finished(batch);
    assert.equal(status.status, "failed", JSON.stringify(status));
    assert.equal(status.error.code, "model_not_found");
  },

  async cancelling_ends_a_batch() {
    const batch = await startBatch({ provider, requests: requests(3000) });
    await cancelBatch({ provider, batch });
    await cancelBatch({ provider, batch });
    assert.equal((await finished(batch)).rawStatus, "cancelled");
  },

  async lists_go_on_behind_a_cursor() {
    const started = [];
    for (let n = 0; n < 5; n += 1) started.push((await startBatch({ provider, requests: requests(1) })).id);
    const found = [];
    let cursor;
    do {
      const page = await listBatches({ provider, limit: 2, cursor });
      found.push(...page.batches.map((batch) => batch.id));
      cursor = page.nextCursor;
    } while (cursor && found.length < 5);
    assert.deepEqual(found.slice(0, 5), started.reverse());
  },

  async a_file_is_uploaded() {
    const data = new TextEncoder().encode("hello");
    const file = await uploadFile({ api: openai.files(), data, mediaType: "text/plain", filename: "hello.txt" });
    assert.match(file.providerReference.openai, /^file-/, JSON.stringify(file));
  },
};

const outcomes = {};
for (const [name, run] of Object.entries(parts)) {
  try {
    await run();
    outcomes[name] = null;
  } catch (error) {
    outcomes[name] = `${error.stack}`;
  }
}
console.log(JSON.stringify(outcomes));
