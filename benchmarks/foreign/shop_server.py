"""The built-in shop as an MCP server with `load_scenario` and `save_scenario`, as EnvFactory's servers have them."""

from mcp.server.mcpserver import MCPServer

from rlf.builtin.shop.world import Shop

server = MCPServer("shop")
shop = Shop()


@server.tool()
def load_scenario(scenario: dict) -> str:
    """Begin with these orders."""
    global shop
    shop.close()
    shop = Shop()
    shop.reset(scenario["shop"], scenario["split"], {}, [])
    return "loaded"


@server.tool()
def save_scenario() -> dict:
    """Show every order."""
    return shop.state()


@server.tool()
def orders(customer: str) -> str:
    """List a customer's orders, each as product, state and number."""
    return shop.orders(customer)


@server.tool()
def cancel(number: str) -> str:
    """Cancel an open order."""
    return shop.cancel(number)


@server.tool()
def refund(number: str) -> str:
    """Refund a delivered order."""
    return shop.refund(number)


@server.tool()
def buy(customer: str, product: str) -> str:
    """Make a new order for a customer."""
    return shop.buy(customer, product)


server.run()
