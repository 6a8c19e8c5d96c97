/** The call that was just made, as text for a shell and for Python. */

import { apiKey, BASE } from "./api.js";

/** What Python does with the answer, for each kind of call. The first four go through the official `openai` client. */
const PYTHON = {
  written: { method: "completions.create", result: "stream", after: `for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].text, end="", flush=True)
` },
  chat: { method: "chat.completions.create", result: "stream", after: `for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
` },
  next: { method: "completions.create", result: "answer", imports: "import math\n", after: `
for token, logprob in answer.choices[0].logprobs.top_logprobs[0].items():
    print(f"{math.exp(logprob):.3f} {token!r}")
` },
  compare: { method: "embeddings.create", result: "answer", imports: "import math\n", after: `
vectors = [item.embedding for item in answer.data]
for a in vectors:
    print(*(f"{sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b):.3f}" for b in vectors))
` },
  translate: { after: `for item in answer["data"]:
    for found in item["translations"]:
        print(found["score"], found["text"])
` },
  classify: { after: `for found in answer["data"][0]["labels"]:
    print(found["probability"], found["label"])
` },
  predict: { after: `for found in answer["data"][0]["predictions"]:
    print(found)
` },
  forecast: { after: `for series in answer["data"][0]["series"]:
    for date, mean in zip(series["dates"], series["mean"]):
        print(series["name"], date, mean)
` },
};

/** For a POSIX shell: inside single quotes only the single quote itself is special. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {{path: string, body: object}} call */
export function curlCall({ path, body }) {
  const parts = [`curl ${body.stream ? "-N " : ""}${quoted(BASE + path)}`, "-H 'Content-Type: application/json'"];
  if (apiKey()) parts.push('-H "Authorization: Bearer $REGARD_API_KEY"');
  return [...parts, `-d ${quoted(JSON.stringify(body, null, 2))}`].join(" \\\n  ") + "\n";
}

/** A value of JSON as Python writes it; JSON's strings are Python's strings. */
function literal(value, indent = "") {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = indent + "    ";
  const list = Array.isArray(value);
  const items = list
    ? value.map((item) => deeper + literal(item, deeper))
    : Object.entries(value).map(([name, item]) => `${deeper}${JSON.stringify(name)}: ${literal(item, deeper)}`);
  if (items.length === 0) return list ? "[]" : "{}";
  return `${list ? "[" : "{"}\n${items.join(",\n")},\n${indent}${list ? "]" : "}"}`;
}

/** @param {{kind: keyof PYTHON, path: string, body: object}} call */
export function pythonCall({ kind, path, body }) {
  const { method, result, after, imports = "" } = PYTHON[kind];
  const key = apiKey() ? 'os.environ["REGARD_API_KEY"]' : null;
  if (!method) {
    const headers = `{"Content-Type": "application/json"${key ? `, "Authorization": "Bearer " + ${key}` : ""}}`;
    return `import json
${key ? "import os\n" : ""}import urllib.request

body = ${literal(body)}
request = urllib.request.Request(
    ${literal(BASE + path)},
    data=json.dumps(body).encode(),
    headers=${headers},
)
with urllib.request.urlopen(request) as response:
    answer = json.load(response)
${after}`;
  }
  const { truncate, ...known } = body; // a field of ours, which their client takes apart from its own
  const told = truncate === undefined ? known : { ...known, extra_body: { truncate } };
  const fields = Object.entries(told).map(([name, value]) => `    ${name}=${literal(value, "    ")},\n`).join("");
  const head = imports + (key ? "import os\n" : "");
  return `${head}${head && "\n"}from openai import OpenAI\n\n`
    + `client = OpenAI(base_url=${literal(`${BASE}/v1`)}, api_key=${key ?? '"none"'})\n`
    + `${result} = client.${method}(\n${fields})\n${after}`;
}
