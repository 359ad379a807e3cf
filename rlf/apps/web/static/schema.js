// What a JSON Schema allows at a place of a YAML text: keys and values, for completion.

// A schema and all that it refers to or is made of, flat.
function expand(root, schema, seen = new Set()) {
  if (!schema || typeof schema !== "object" || seen.has(schema)) return [];
  seen.add(schema);
  const parts = [schema];
  if (schema.$ref) parts.push(...expand(root, schema.$ref.split("/").slice(1).reduce((at, key) => at?.[decodeURIComponent(key)], root), seen));
  for (const key of ["allOf", "anyOf", "oneOf"]) for (const part of schema[key] || []) parts.push(...expand(root, part, seen));
  for (const key of ["then", "else"]) parts.push(...expand(root, schema[key], seen));
  return parts;
}

function below(root, parts, key) {
  const found = parts.flatMap(part => typeof key === "number" ? [part.items, ...(part.prefixItems || [])] : [part.properties?.[key], !part.properties?.[key] && typeof part.additionalProperties === "object" ? part.additionalProperties : null]);
  return found.flatMap(schema => expand(root, schema || null));
}

export function schemasAt(root, path) {
  return path.reduce((parts, key) => below(root, parts, key), expand(root, root));
}

// The keys that lead to a line of a text, by its indentation; flow mappings on the line are followed too.
export function pathAt(lines, row, column) {
  const path = [];
  const indentOf = line => line.match(/^ */)[0].length;
  const keyOf = line => line.match(/^\s*(?:- )*\s*(?:"([^"]+)"|'([^']+)'|([\w.-]+))\s*:(?:\s|$)/);
  const here = lines[row].slice(0, column);
  let limit = here.trim() === "" ? column : indentOf(lines[row]);
  const dash = here.match(/^(\s*)- /);
  if (dash) { path.unshift(0); limit = dash[1].length + 0.5; }
  for (let at = row - 1; at >= 0 && limit > 0; at--) {
    const line = lines[at];
    if (!line.trim() || line.trim().startsWith("#")) continue;
    const indent = indentOf(line), item = line.match(/^(\s*)- /), key = keyOf(line);
    if (item && item[1].length + 2 <= limit && limit >= 1 && Number.isInteger(limit)) {
      if (key && item[1].length + 2 < limit) path.unshift(key[1] || key[2] || key[3]);
      path.unshift(0);
      limit = item[1].length + 0.5;
    } else if (!item && indent < limit && key) {
      path.unshift(key[1] || key[2] || key[3]);
      limit = indent;
    }
  }
  return [...path, ...flowPath(here, keyOf)];
}

function flowPath(here, keyOf) {
  const stack = [];
  let word = "", key = null;
  const start = keyOf(here);
  for (const letter of here) {
    if (letter === "{" || letter === "[") { stack.push(key ?? 0); if (letter === "[") stack.push(0); key = null; word = ""; }
    else if (letter === "}" || letter === "]") { stack.pop(); if (letter === "]") stack.pop(); }
    else if (letter === ":") { key = word.trim().replace(/^- /, "").replace(/["']/g, ""); word = ""; }
    else if (letter === ",") { word = ""; key = null; }
    else word += letter;
  }
  return stack.length && start ? stack.map((part, place) => place === 0 ? start[1] || start[2] || start[3] || part : part) : stack;
}

export function keysOf(parts) {
  const found = new Map();
  for (const part of parts) for (const [key, schema] of Object.entries(part.properties || {})) if (!found.get(key)) found.set(key, schema.description || "");
  return found;
}

export function valuesOf(parts) {
  return [...new Set(parts.flatMap(part => [...(part.enum || []), ...("const" in part ? [part.const] : []), ...(part.type === "boolean" ? [true, false] : [])]).filter(value => value !== null).map(String))];
}
