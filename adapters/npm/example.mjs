// Ask, say that the first document helped, and take that back.
import { connect } from "crabpath";

const address = process.env.CRABPATH_URL ?? "http://127.0.0.1:8765";
const client = connect(address, { token: process.env.CRABPATH_TOKEN });

const asked = await client.POST("/v1/query", { body: { text: "How do I deploy?", k: 2 } });
if (!asked.data) throw new Error(asked.error.detail);
const { turn_id, documents } = asked.data;
for (const { title, score } of documents) console.log(score.toFixed(2), title);

const thumb = await client.POST("/v1/feedback", {
  body: { turn_id, outcome: "up", used: documents.slice(0, 1).map((document) => document.id) },
});
if (!thumb.data) throw new Error(thumb.error.detail);
console.log("feedback", thumb.data.status);

const undone = await client.POST("/v1/undo", { body: { feedback_id: thumb.data.feedback_id } });
if (!undone.data) throw new Error(undone.error.detail);
console.log("undo", undone.data.status);
