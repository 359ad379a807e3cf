async function reach(address, options) {
  try { return await fetch(address, options); } catch (error) { if (error.name === "AbortError") throw error; throw new Error("the server does not answer: is `rlf web` still running?"); }
}
// Requests that change something: JSON, with the header that a form of another site cannot send.
export async function request(method, address, body, headers = {}, signal = undefined) {
  const answer = await reach(address, {
    method, signal, headers: {"Content-Type": "application/json", "X-RLF": "1", ...headers},
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* not ours */ }
  if (!answer.ok) {
    const fault = value && value.error;
    throw Object.assign(new Error((fault && fault.message) || `${answer.status} ${answer.statusText}`), {status: answer.status, fault, value});
  }
  return {value, headers: answer.headers};
}
export const post = async (address, body, signal) => (await request("POST", address, body, {}, signal)).value;
export const read = async address => {
  const answer = await reach(address);
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer.json();
};
